//! `txos diff --relative` is what `git apply` takes.

use txos_testkit::tree::Tolerance;
use txos_testkit::{Lab, Tree, require, skip};

const PREPARE: &str = "
    mkdir -p 'd e/inner' gone bin; seq 100 > text; echo plain > 'd e/a b'; printf 'no end' > inner-end
    head -c 300000 /dev/urandom > bin/random; printf 'a\\0b' > bin/small; echo x > bin/tool; chmod 755 bin/tool
    ln -s text link; echo bye > gone/file; printf 'odd\\n' > \"$(printf 'n\\303\\244me\\tw\\\"q')\"; seq 5 > moved";

const CHANGE: &str = "
    set -e
    sed -i 's/^5$/five/; s/^90$/ninety/' text; echo more >> 'd e/a b'; printf ' and on' >> inner-end
    printf 'patched' | dd of=bin/random bs=1 seek=1000 conv=notrunc 2>/dev/null; printf 'c\\0d' > bin/small
    chmod 644 bin/tool; ln -sfn 'd e' link; rm -r gone; echo more >> \"$(printf 'n\\303\\244me\\tw\\\"q')\"
    mkdir new; seq 20 > new/text; head -c 5000 /dev/urandom > new/random; : > new/empty; ln -s ../text new/link
    rm moved; ln -s text moved; mv inner-end new/end; chmod 755 new/text";

/// What git knows as changes of files, each by itself.
const MOVES: &str = "
    set -e
    mkdir -p dir/in/deep; mv one two; mv left right.tmp; mv right left; mv right.tmp right; mv log log.1; echo fresh > log
    chmod 755 mode; mv dir to; echo 4 >> to/in/f; rm to/in/g; mv to/in/h h; mv to/in/deep/k to/k; ln -sfn mode link";

#[test]
fn git_applies_moves() {
    require!(skip::has("git"), "no git");
    let prepare = "mkdir -p dir/in/deep; for f in one two left right log log.1 mode dir/x dir/in/f dir/in/g dir/in/h dir/in/deep/k
        do seq $(echo $f | wc -c) > $f; echo $f >> $f; done; ln -s one link; cp -a . ../copy";
    for view in ["overlay", "library"] {
        let lab = Lab::in_memory();
        let _ = lab.native(prepare);
        let _ = lab.script(&["--view", view, "--keep", "--name", "n"], MOVES).run().expect(0);
        for back in [false, true] {
            let patch = lab.txos(["diff", "@", "--relative"]).run().expect(0);
            assert!(back || patch.stderr.is_empty(), "{view}: {patch:?}");
            std::fs::write(lab.dir().join("patch"), &patch.stdout).unwrap();
            let apply = if back { "git apply -R" } else { "git apply" };
            let _ = lab.native(&format!("cd ../copy; {apply} --check ../patch; {apply} ../patch"));
            if !back {
                let _ = lab.txos(["commit", "n"]).run().expect(0);
                let _ = lab.native("find . ../copy -depth -type d -empty -delete");
                let untimed = Tolerance { times: true, ..Tolerance::default() };
                Tree::of(lab.tree()).expect(&Tree::of(lab.dir().join("copy")), untimed, view);
            }
        }
    }
}

/// What had to make room for what was moved is shown.
#[test]
fn what_is_replaced_is_shown() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo one > a; echo two > b");
    let _ = lab.script(&["--view", "library", "--keep", "--name", "n"], "mv a b").run().expect(0);
    for state in ["pending", "committed"] {
        let diff = lab.txos(["diff", "n"]).run().expect(0).text();
        assert!(diff.contains("rename to ") && diff.contains("\n-two\n"), "{state}: {diff}");
        let stat = lab.txos(["diff", "n", "--stat"]).run().expect(0).text();
        assert!(stat.contains("moved, replaces what was there"), "{state}: {stat}");
        let _ = lab.txos(["commit", "n"]).run();
    }
}

#[test]
fn git_applies_it() {
    for view in ["overlay", "library"] {
        git_applies_what_is_kept_in(view);
    }
}

fn git_applies_what_is_kept_in(view: &str) {
    require!(skip::has("git"), "no git");
    let lab = Lab::in_memory();
    let _ = lab.native(&format!("{PREPARE}\ncp -a . ../copy"));
    let _ = lab.script(&["--view", view, "--keep", "--name", "n"], CHANGE).run().expect(0);
    let patch = lab.txos(["diff", "n", "--relative"]).run().expect(0);
    assert!(patch.stderr.is_empty(), "{patch:?}");
    std::fs::write(lab.dir().join("patch"), &patch.stdout).unwrap();
    let apply = "cd ../copy; git -c core.autocrlf=false apply --whitespace=nowarn";
    let _ = lab.native(&format!("{apply} --check ../patch; {apply} ../patch"));
    let _ = lab.txos(["commit", "n"]).run().expect(0);
    // git makes no empty directories, and takes no times.
    let _ = lab.native("rmdir 'd e/inner' ../copy/'d e/inner'");
    let untimed = Tolerance { times: true, ..Tolerance::default() };
    Tree::of(lab.tree()).expect(&Tree::of(lab.dir().join("copy")), untimed, "git apply");
    // And back, by the patch of the revert; here of the part below a directory.
    let _ = lab.txos(["revert", "n"]).run().expect(0);
    let back = lab.txos(["diff", "@", "--relative"]).dir(lab.path("bin")).run().expect(0);
    std::fs::write(lab.dir().join("back"), &back.stdout).unwrap();
    let _ = lab.native("cd ../copy/bin; git apply ../../back");
    for file in ["random", "small", "tool"] {
        let both = [lab.path("bin"), lab.dir().join("copy/bin")].map(|dir| dir.join(file));
        let [here, there] = both.map(|path| std::fs::read(path).unwrap());
        assert!(here == there, "{file}");
    }
    assert!(lab.dir().join("copy/new/text").exists());
}

#[test]
fn what_git_cannot_say_is_told() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir moved; echo y > owned; echo z > told");
    let change =
        "mkdir empty; mkfifo pipe; chown 7 owned; mv moved to; setfattr -n user.a -v 1 told";
    let _ = lab.script(&["--keep"], change).run().expect(0);
    let patch = lab.txos(["diff", "--relative"]).run().expect(0);
    for path in ["empty", "pipe", "owned", "to", "told"] {
        let told = format!("not in the patch: {}: ", lab.path(path).display());
        assert!(patch.stderr.contains(&told), "{path}: {patch:?}");
    }
    assert!(patch.stdout.is_empty(), "{patch:?}");
}
