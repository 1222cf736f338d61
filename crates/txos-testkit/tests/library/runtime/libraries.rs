//! Programs whose shared libraries the same command has made, changed, moved or removed: they have those, as natively.

use txos_testkit::{Lab, Tree, system};

use super::decided::keep;
use super::whole::Pair;

/// A library that says which one it is, a second one that needs it, and programs that need either.
const SOURCES: &str = "
    set -e
    mkdir bin lib
    printf '#include <stdio.h>\\nvoid which(void) { puts(WHICH); }\\n' > which.c
    printf 'void which(void); void outer(void) { which(); }\\n' > outer.c
    printf 'void which(void); int main(void) { which(); return 0; }\\n' > direct.c
    printf 'void outer(void); int main(void) { outer(); return 0; }\\n' > indirect.c
    cat > make-which <<'END'
cc -shared -fPIC -DWHICH=\"\\\"$1\\\"\" which.c -o $2
END
    chmod +x make-which";

/// Makes the first library, and everything that needs it.
const BUILD: &str = "
    set -e
    sh ./make-which first lib/libwhich.so
    cc -shared -fPIC outer.c -Llib -lwhich -o lib/libouter.so
    cc direct.c -Llib -lwhich -Wl,-rpath,'$ORIGIN/../lib' -o bin/direct
    cc indirect.c -Llib -louter -Wl,-rpath-link,lib -o bin/indirect";

const RUN: &str = "; ./bin/direct; echo $?; LD_LIBRARY_PATH=$PWD/lib bin/indirect; echo $?";

/// What a command does with the libraries before it runs the programs.
const CHANGES: [&str; 9] = [
    "sh ./make-which replaced new && mv new lib/libwhich.so",
    "sh ./make-which written new && cat new > lib/libwhich.so",
    "sh ./make-which 'in another directory' new.so && mkdir new && mv new.so new/libwhich.so && mv lib old && cp old/libouter.so new && mv new lib",
    "mv lib away",
    "mv lib away; ln -s away lib",
    "mv lib away; mkdir -p some/where; ln -s ../../away some/where/lib; ln -s some/where/lib lib",
    "rm lib/libwhich.so",
    "truncate -s 100 lib/libwhich.so",
    "chmod 600 lib/libouter.so; ln lib/libwhich.so lib/other; echo same",
];

#[test]
fn what_was_built_is_run() {
    let pair = Pair::new(SOURCES);
    pair.does(&["sh", "-c", &format!("({BUILD}){RUN} > out; cat out")]);
    pair.clean();
}

#[test]
fn what_was_changed_is_loaded() {
    for change in CHANGES {
        let pair = Pair::new(&format!("{SOURCES}{BUILD}"));
        pair.does(&["sh", "-c", &format!("{{ {change}; }}{RUN} > out; cat out")]);
        pair.clean();
    }
}

/// By a directory that a new link leads to, and by scripts.
#[test]
fn what_a_link_leads_to_is_loaded() {
    let pair = Pair::new(&format!(
        "{SOURCES}{BUILD}; sh ./make-which second second.so; mkdir two one
         mv second.so two/libwhich.so; cp lib/libwhich.so one; ln -s one current"
    ));
    let run = "LD_LIBRARY_PATH=$PWD/current bin/direct";
    let program = "ln -sfn two current; printf '#!/bin/sh\\nbin/direct\\n' > script; chmod +x script; LD_LIBRARY_PATH=$PWD/current ./script";
    pair.does(&[
        "sh",
        "-c",
        &format!("{run}; {program}; {run}; exec env LD_LIBRARY_PATH=$PWD/current bin/direct"),
    ]);
    pair.clean();
}

/// The programs of a system go on as they are: into each the library is loaded otherwise than before.
#[test]
fn programs_run_on() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/library/runtime/c/alone.c");
    let pair = Pair::new(&format!("cc -O1 -pthread {source} -o alone"));
    for kind in ["memory", "threads", "processes", "signals", "arguments"] {
        pair.answers(&["sh", "-c", &format!("touch new.so; ./alone {kind}; echo $? > status")]);
    }
    let script = "touch libnew.so.1; mkdir in; seq 300 | (cd in; split -l 3 -); tar --sort=name --mtime=@1 --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime -cf all.tar in
                  python3 -c 'import subprocess, threading, os, json
t = threading.Thread(target=lambda: subprocess.run([\"sh\", \"-c\", \"echo $0 > by-thread\"])); t.start(); t.join()
print(os.path.basename(os.readlink(\"/proc/self/exe\"))[:6], subprocess.check_output([\"cat\", \"by-thread\"]))
os.execvp(\"sh\", [\"sh\", \"-c\", \"sort -R in/xaa | sort -n; sleep 0.01 & wait; kill -9 $$\"])'";
    pair.answers(&["sh", "-c", &format!("{script}; echo $?")]);
    pair.clean();
}

/// The next command in what was kept has them as well.
#[test]
fn further_commands_have_them() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let _ = lab.native(&format!("{SOURCES}{BUILD}"));
    let before = Tree::of(lab.tree());
    let id = keep(
        &lab,
        "sh ./make-which kept new && mkdir lib2 && mv new lib2/libwhich.so; mv lib old; mv lib2 lib",
    );
    let run = |words: &[&str]| lab.txos(["exec", &id, "--"]).args(words).run().expect(0).text();
    assert_eq!(run(&["bin/direct"]), "kept\n");
    assert_eq!(
        run(&["sh", "-c", "bin/direct; mv lib new; mv old lib; exec bin/direct"]),
        "kept\nfirst\n"
    );
    before.expect_same(&Tree::of(lab.tree()));
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(
        lab.native("bin/direct; LD_LIBRARY_PATH=new bin/direct").expect(0).text(),
        "first\nkept\n"
    );
    lab.expect_clean();
}

/// A dynamic linker that is only asked what a program needs.
#[test]
fn what_a_program_needs_is_listed() {
    let pair = Pair::new("touch file");
    let list = "LD_TRACE_LOADED_OBJECTS=1 /bin/ls | sed 's/(.*//'; ldd /bin/ls | sed 's/(.*//'; LD_TRACE_LOADED_OBJECTS= /bin/ls | sed 's/(.*//'";
    pair.answers(&["sh", "-c", &format!("{list}; echo $?")]);
    pair.does(&["sh", "-c", &format!("touch new.so; {list}")]);
    pair.clean();
}
