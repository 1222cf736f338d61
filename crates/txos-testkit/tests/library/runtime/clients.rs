//! Clients and servers that people use, as they are: curl, wget, ssh, rsync, git, psql and nginx, with servers of the test's own
//! in a network of its own. Each does in both views of a command, and as one transaction of its thread (`c/throughout.c`), what
//! it does natively; when it is rolled back, nothing of it is left here, and what was done at the other end stays.
#![allow(unsafe_code)] // a network namespace for the thread

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::thread::UnshareFlags;
use txos_testkit::tree::Tolerance;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Running, Tree, require, require_some, skip, system};

use crate::program::{Linked, program};

const HTTP: u16 = 8080;
const HTTPS: u16 = 8443;
const SSH: u16 = 2222;
const POSTGRES: u16 = 5432;
/// Who runs the database, which root may not.
const NOBODY: u32 = 65534;

/// A network of the thread's own, with nothing but the loopback interface: its ports are the test's.
fn enter_network() {
    // SAFETY: only this thread, and what it starts, is in the namespace; its open sockets stay where they are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace");
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: zeroes are a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    (request.ifr_name[0], request.ifr_name[1]) = (b'l' as libc::c_char, b'o' as libc::c_char);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads the request.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    assert_eq!(done, 0, "turning on the loopback interface");
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// A server of the test's, which ends with it.
struct Server {
    running: Running,
    /// What has it end, and its children with it.
    ends_by: Signal,
}

impl Server {
    /// Starts it, and waits until it listens.
    fn start(invocation: Invocation, ends_by: Signal, port: u16) -> Server {
        let mut server = Server { running: invocation.start(), ends_by };
        until("a server listens", || {
            assert!(!server.running.ended(), "it has ended: {}", server.running.stderr());
            is_open(port)
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.signal(self.ends_by);
        let begun = Instant::now();
        // It is killed otherwise, and its children may be left.
        while !self.running.ended() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How a command becomes a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Overlay,
    Library,
}

const VIEWS: [View; 2] = [View::Overlay, View::Library];

/// The same place several times: for what runs natively, and for each way into a transaction.
struct Places {
    /// What clients read of the machine, such as /etc/passwd, stays.
    _stable: system::Guard,
    lab: Lab,
    native: Lab,
    overlay: Lab,
    library: Lab,
    thread: Lab,
}

impl Places {
    fn new() -> Places {
        let stable = system::stable();
        let lab = Lab::in_memory();
        enter_network();
        let [native, overlay, library, thread] =
            ["native", "overlay", "library", "thread"].map(|name| lab.nested(name));
        Places { _stable: stable, lab, native, overlay, library, thread }
    }

    fn of(&self, view: View) -> &Lab {
        match view {
            View::Overlay => &self.overlay,
            View::Library => &self.library,
        }
    }

    /// A directory of a server's.
    fn server(&self, name: &str) -> PathBuf {
        let dir = self.lab.dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    fn command(&self, view: View, command: &[&str]) -> Invocation {
        let place = self.of(view);
        let run = match view {
            View::Overlay => place.txos(["run", "--view", "overlay", "--scope"]).arg(place.tree()),
            View::Library => place.txos(["run", "--view", "library"]),
        };
        run.arg("--").args(command)
    }

    /// A script that says in `$NAME` who runs it.
    fn script(&self, view: View, name: &str, script: &str) -> Done {
        self.command(view, &["sh", "-c", script]).env("NAME", name).run()
    }

    fn alike(&self, place: &Lab) -> String {
        let tolerance =
            Tolerance { now_from: Some(1_500_000_000), links: true, ..Tolerance::default() };
        Tree::of(self.native.tree()).difference(&Tree::of(place.tree()), tolerance)
    }

    /// In both views a script prints and leaves what it prints and leaves natively, and nothing is left when it fails.
    #[track_caller]
    fn agree(&self, script: &str) -> Done {
        let native =
            Invocation::shell(script).dir(self.native.tree()).env("NAME", "native").run().expect(0);
        for view in VIEWS {
            let place = self.of(view);
            let before = Tree::of(place.tree());
            let failing = format!("{script}\nexit 33");
            let done = self.script(view, &format!("{view:?}-failed"), &failing).expect(33);
            assert_eq!(done.text(), native.text(), "{view:?}: {done:?}");
            before.expect_same(&Tree::of(place.tree()));
            if view == View::Library {
                let what = "rolled back; live, and not rolled back: ";
                let done = done.says(what);
                assert!(done.stderr.contains("network and socket traffic"), "{done:?}");
            }

            let done = self.script(view, &format!("{view:?}"), script).expect(0);
            let difference = self.alike(place);
            assert!(difference.is_empty(), "native (-), {view:?} (+):\n{difference}{done:?}");
            assert_eq!(done.text(), native.text(), "{view:?}: {done:?}");
            assert_eq!(of_the_program(&done), of_the_program(&native), "{view:?}: {done:?}");
        }
        native
    }

    /// So does a program of the script as one transaction of its thread. What it has written is gone if that is aborted: the
    /// `files`.
    #[track_caller]
    fn agree_throughout(&self, named: &str, script: &str, files: &[&str]) {
        let native = self.agree(script);
        let shell = || {
            Invocation::shell(script)
                .dir(self.thread.tree())
                .env("TXOS_STORE", self.thread.store())
                .env("TXOS_REALM", self.thread.realm())
                .env("LD_PRELOAD", program("throughout", Linked::IntoOthers))
                .env("THROUGHOUT", named)
        };
        let done = shell().env("NAME", "thread-aborted").env("THROUGHOUT_ABORTS", "1").run();
        // scp has a child talk, over a pair of sockets of its own.
        let talks = named != "scp";
        let done = done.says("throughout: aborted");
        assert_eq!(done.stderr.contains("; sent before that: "), talks, "{done:?}");
        for file in files {
            assert!(!self.thread.path(file).exists(), "{file}: {done:?}");
        }
        let done = shell().env("NAME", "thread").run().expect(0).says("throughout: committed");
        assert_eq!(done.text(), native.text(), "{done:?}");
        let difference = self.alike(&self.thread);
        assert!(difference.is_empty(), "native (-), here (+):\n{difference}{done:?}");
        let released = "so output that was held is sent before the commit, and stays";
        assert_eq!(done.stderr.contains(released), talks, "{done:?}");
        assert_eq!(of_the_program(&done), of_the_program(&native), "{done:?}");
    }

    fn clean(&self) {
        for place in [&self.overlay, &self.library, &self.thread] {
            place.expect_clean();
        }
    }
}

/// What programs say on standard error.
fn of_the_program(done: &Done) -> Vec<&str> {
    let is_ours = |line: &&str| line.starts_with("txos: ") || line.starts_with("throughout: ");
    done.stderr.lines().filter(|line| !is_ours(line)).collect()
}

// --- Servers ------------------------------------------------------------------------------------

/// What nginx is to do in a directory.
fn configure_nginx(dir: &Path, http: u16, https: u16) {
    let _ = Invocation::shell(
        "umask 022; mkdir www up tmp logs
        seq 1 20000 > www/f1; seq 1 60000 > www/f2; seq 1 200000 | cksum > www/f3
        seq 1 400000 > www/big
        openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=test \
            -addext subjectAltName=IP:127.0.0.1 2> /dev/null",
    )
    .dir(dir)
    .run()
    .expect(0);
    let dir = dir.display();
    let text = format!(
        "user root; worker_processes 1; pid {dir}/logs/pid; error_log {dir}/logs/error.log;
        events {{}}
        http {{
            access_log {dir}/logs/access.log; client_body_temp_path tmp/body; proxy_temp_path tmp/proxy;
            fastcgi_temp_path tmp/fastcgi; uwsgi_temp_path tmp/uwsgi; scgi_temp_path tmp/scgi;
            client_max_body_size 100m;
            server {{
                listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl;
                ssl_certificate cert.pem; ssl_certificate_key key.pem;
                root {dir}/www;
                location /up/ {{ alias {dir}/up/; dav_methods PUT; }}
            }}
        }}"
    );
    std::fs::write(format!("{dir}/conf"), text).unwrap();
}

/// The arguments of nginx for that.
fn nginx_arguments(dir: &Path, globals: &str) -> Vec<String> {
    let words =
        ["nginx", "-e", "logs/error.log", "-p", &format!("{}/", dir.display()), "-c", "conf"];
    let globals = format!("daemon off; {globals}");
    words.into_iter().chain(["-g", &globals]).map(str::to_owned).collect()
}

fn nginx(dir: &Path) -> Server {
    configure_nginx(dir, HTTP, HTTPS);
    let words = nginx_arguments(dir, "");
    let command = Invocation::new(&words[0]).args(&words[1..]).dir(dir);
    Server::start(command, Signal::TERM, HTTP)
}

/// One that lets root in, with a key of the test's. `None`: it does not.
fn sshd(dir: &Path) -> Option<Server> {
    // Its directory for the part without privileges; the mount is the test's.
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", "/run", "tmpfs", flags, Some(c"mode=755")).unwrap();
    std::fs::create_dir("/run/sshd").unwrap();
    let place = dir.display();
    let server = format!(
        "Port {SSH}\nListenAddress 127.0.0.1\nHostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\nPidFile none\n\
        UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    );
    let client = format!(
        "Host there\nHostName 127.0.0.1\nPort {SSH}\nUser root\nIdentityFile {place}/user\nIdentitiesOnly yes\n\
        UserKnownHostsFile {place}/known\nStrictHostKeyChecking yes\nLogLevel ERROR\nControlPath none\n"
    );
    std::fs::write(dir.join("server"), server).unwrap();
    std::fs::write(dir.join("client"), client).unwrap();
    let keys = format!(
        "ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f user
        echo \"[127.0.0.1]:{SSH} $(cut -d' ' -f1,2 host.pub)\" > known"
    );
    let _ = Invocation::shell(keys).dir(dir).run().expect(0);
    // It wants to be called by its whole path.
    let command =
        Invocation::new("/usr/sbin/sshd").args(["-D", "-e", "-f"]).arg(dir.join("server"));
    let server = Server::start(command, Signal::TERM, SSH);
    let probe = Invocation::new("ssh").arg("-F").arg(dir.join("client")).args(["there", "true"]);
    (probe.run().code() == 0).then_some(server)
}

/// Where the programs of PostgreSQL are.
fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let dirs = versions.map(|version| version.path().join("bin"));
    dirs.filter(|dir| dir.join("initdb").exists() && dir.join("psql").exists()).max()
}

fn postgres(dir: &Path, programs: &Path) -> Server {
    chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let data = dir.join("data");
    let own = |name: &str| Invocation::new(programs.join(name)).user(NOBODY, NOBODY).dir(dir);
    let options = ["-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--no-locale"];
    let _ = own("initdb").args(options).arg("-D").arg(&data).run().expect(0);
    let settings = [
        "listen_addresses=127.0.0.1",
        "fsync=off",
        "max_connections=20",
        "shared_buffers=16MB",
        "dynamic_shared_memory_type=mmap",
    ];
    let server = own("postgres").arg("-D").arg(&data).arg("-k").arg(dir);
    let server = settings.iter().fold(server, |server, setting| server.args(["-c", setting]));
    let server = Server::start(server.args(["-p", &POSTGRES.to_string()]), Signal::INT, POSTGRES);
    until("the database answers", || {
        let ready = Invocation::new(programs.join("pg_isready")).arg("-q").arg("-h").arg(dir);
        ready.run().code() == 0
    });
    server
}

// --- Clients ------------------------------------------------------------------------------------

#[test]
fn curl_and_others_fetch_and_send() {
    for program in ["nginx", "curl", "openssl"] {
        require!(skip::has(program), "no {program}");
    }
    let places = Places::new();
    let dir = places.server("nginx");
    let server = nginx(&dir);
    let (here, there) = (dir.display(), format!("http://127.0.0.1:{HTTP}"));
    let secure = format!("https://127.0.0.1:{HTTPS}");
    let curl = format!("curl -sS --cacert {here}/cert.pem");
    for (files, script) in [
        // One connection, several answers.
        (&["f1", "f2", "big"][..], format!("{curl} -O {there}/f1 -O {there}/f2 -O {there}/big")),
        (&["s1", "s2"], format!("{curl} -o s1 {secure}/f1 -o s2 {secure}/big; cksum < s2")),
        (
            &["p1", "p2", "p3"],
            format!(
                "{curl} --no-progress-meter -Z -o p1 {there}/big -o p2 {secure}/f2 -o p3 {there}/f3"
            ),
        ),
        (&["part"], format!("{curl} -r 100-50000 -o part {there}/big; {curl} -C 500 {there}/f1 | cksum")),
        (
            &["again"],
            format!(
                "{curl} -T {here}/www/big {there}/up/$NAME -T {here}/www/f2 {secure}/up/$NAME-2 -w '%{{http_code}}\\n'
                 {curl} -o again {there}/up/$NAME; cmp again {here}/www/big"
            ),
        ),
        (&[], format!("{curl} -d name=value {there}/f1 -w '%{{http_code}}' | tail -c 3; {curl} -f {there}/none; echo $?")),
    ] {
        places.agree_throughout("curl", &script, files);
    }
    // Nothing has reached anybody.
    // (curl tells how long it has tried.)
    let refused = format!(
        "{curl} http://127.0.0.1:1/ 2> said; echo $?; sed 's/after [0-9]* ms//' said; rm said
         {curl} file://{here}/www/f1 | cksum"
    );
    let native = Invocation::shell(&refused).run().expect(0);
    for view in VIEWS {
        let done = places.script(view, "", &refused).expect(0);
        assert_eq!((done.text(), of_the_program(&done)), (native.text(), of_the_program(&native)));
    }
    if skip::has("wget") {
        let script = format!(
            "wget -q {there}/f1 -O w1; wget -q --ca-certificate {here}/cert.pem {secure}/f2 -O w2"
        );
        places.agree_throughout("wget", &script, &["w2"]);
    }
    if skip::has("/usr/bin/python3") {
        let python = format!(
            "import http.client, os\n\
            c = http.client.HTTPConnection('127.0.0.1', {HTTP})\n\
            for name in ['f1', 'f2', 'big']:\n    \
                c.request('GET', '/' + name); r = c.getresponse(); open('py-' + name, 'wb').write(r.read()); print(r.status)\n\
            c.request('PUT', '/up/' + os.environ['NAME'] + '-py', body=b'x' * 2000000); r = c.getresponse(); print(r.status)\n"
        );
        let script = format!("/usr/bin/python3 -I -S - <<'END'\n{python}END");
        places.agree_throughout("python3", &script, &["py-f1", "py-f2", "py-big"]);
    }
    if skip::has("git") {
        let _ = places.lab.native(&format!(
            "cd {here}/www; git init -q r; cd r; echo content > file; git add file
            git -c user.name=n -c user.email=n@example.invalid commit -q -m one; git update-server-info"
        ));
        places.agree(&format!("git clone -q {there}/r/.git; cat r/file; rm -rf r/.git"));
    }
    // What was sent stays.
    for name in ["Overlay-failed", "Library-failed", "thread-aborted", "thread-aborted-2"] {
        assert!(dir.join("up").join(name).exists(), "{name}");
    }
    drop(server);
    places.clean();
}

#[test]
fn ssh_runs_commands_and_copies() {
    require!(Path::new("/usr/sbin/sshd").exists(), "no /usr/sbin/sshd");
    require!(skip::has("ssh"), "no ssh");
    let places = Places::new();
    let dir = places.server("ssh");
    let server = require_some!(sshd(&dir), "sshd does not let root in here");
    let here = dir.display();
    let ssh = format!("ssh -F {here}/client there");
    for script in [
        format!("echo hello | {ssh} cat; {ssh} 'echo problem >&2; exit 7' > /dev/null; echo $?"),
        format!("{ssh} 'seq 200000' > out; seq 100000 | {ssh} cksum"),
        // Both ways at once, more than any buffer takes.
        format!("{ssh} cat < out > back; cmp out back"),
        format!("{ssh} \"echo done > {here}/$NAME\""),
    ] {
        places.agree_throughout("ssh", &script, &[]);
    }
    let scp = format!("scp -q -F {here}/client");
    places.agree_throughout(
        "scp",
        &format!(
            "seq 50000 > f; {scp} f there:{here}/$NAME.f; {scp} there:{here}/$NAME.f got; cmp f got"
        ),
        &["got"],
    );
    places.agree(&format!("printf 'get {here}/known\\nput known {here}/$NAME.k\\n' | sftp -q -b - -F {here}/client there > /dev/null"));
    if skip::has("rsync") {
        places.agree(&format!(
            "mkdir d; seq 9 > d/a; seq 90000 > d/b; rsync -a -e 'ssh -F {here}/client' d/ there:{here}/$NAME.d/
            rsync -a -e 'ssh -F {here}/client' there:{here}/$NAME.d/ e/; diff -r d e"
        ));
    }
    if skip::has("git") {
        let _ = places.lab.native(&format!(
            "cd {here}; git init -q w; cd w; echo content > file; git add file
            git -c user.name=n -c user.email=n@example.invalid commit -q -m one; git clone -q --bare . ../r"
        ));
        places.agree(&format!(
            "export GIT_SSH_COMMAND='ssh -F {here}/client'; git clone -q ssh://there{here}/r; cd r; cat file
            git push -q origin HEAD:$NAME; echo $?; rm -rf .git"
        ));
    }
    for name in ["Overlay-failed", "Library-failed", "thread-aborted", "thread-aborted.f"] {
        assert!(dir.join(name).exists(), "{name}");
    }
    // A handler ends it while it waits.
    let (go, started) = (dir.join("go"), dir.join("started"));
    std::fs::write(&go, "").unwrap();
    let waits = format!("echo > {here}/started; while test -e {here}/go; do sleep .05; done");
    let client = format!("{here}/client");
    let command = ["ssh", "-F", &client, "there", &waits];
    let running = places.command(View::Library, &command).start();
    until("the command has begun there", || started.exists());
    running.signal(Signal::TERM);
    let _ = running.wait().expect(255);
    std::fs::remove_file(&go).unwrap();
    drop(server);
    places.clean();
}

#[test]
fn psql_asks_and_copies() {
    let programs = require_some!(postgres_programs(), "no PostgreSQL");
    let places = Places::new();
    let dir = places.server("postgres");
    let server = postgres(&dir, &programs);
    let psql = format!("{}/psql -X -U postgres", programs.display());
    let ways = [dir.display().to_string(), "127.0.0.1".to_owned()];
    for (at, host) in ways.iter().enumerate() {
        let psql = format!("{psql} -h {host}");
        for (files, script) in [
            (
                &[][..],
                format!(
                    "{psql} -At -c 'select generate_series(1, 5)'; echo 'select 42;' | {psql} -At"
                ),
            ),
            (&[], format!("{psql} -c 'select nonsense'; echo $?")),
            (
                &["out.csv"],
                format!(
                    "rm -f out.csv; {psql} -c '\\copy (select i, md5(i::text) from generate_series(1, 50000) i) to out.csv csv'; cksum < out.csv"
                ),
            ),
            (
                &[],
                format!(
                    "seq 50000 > in; {psql} -q -At -c 'create temp table t(i int)' -c '\\copy t from in' -c 'select sum(i) from t'"
                ),
            ),
            (
                &["told"],
                format!(
                    "rm -f told; printf 'begin;\\ncreate temp table t(a int);\\ninsert into t select generate_series(1, 1000);\\n\\\\o told\\n\
                    select * from t;\\n\\\\o\\ncommit;\\nselect count(*) from t;\\n' > s.sql; {psql} -f s.sql"
                ),
            ),
            (&[], format!("{psql} -q -c \"create table \\\"$NAME-{at}\\\"(i int)\"")),
        ] {
            places.agree_throughout("psql", &script, files);
        }
        let dump = format!("{}/pg_dump -U postgres -h {host}", programs.display());
        let dump = format!(
            "{dump} -t native-{at} -f raw; grep -v restrict raw > dump; rm -f raw s.sql in"
        );
        places.agree_throughout("pg_dump", &dump, &["raw"]);
    }
    let ask = |what: &str| {
        let psql =
            Invocation::new(programs.join("psql")).args(["-X", "-At", "-U", "postgres", "-h"]);
        psql.arg(&dir).args(["-c", what]).run().expect(0).text()
    };
    // What was done there stays.
    let tables = ask("select relname from pg_class where relname ~ '(failed|aborted)-' order by 1");
    assert_eq!(tables.lines().count(), 6, "{tables}");
    // A handler cancels a query, while psql waits for its answer.
    let psql = programs.join("psql").display().to_string();
    let sleep = "select pg_sleep(1000)";
    let words = [&psql, "-X", "-U", "postgres", "-h", &ways[0], "-c", sleep];
    let running = places.command(View::Library, &words).start();
    until("the query runs", || {
        ask(
            "select count(*) from pg_stat_activity where query ~ '^select pg_sleep' and state = 'active'",
        ) == "1\n"
    });
    running.signal(Signal::INT);
    let _ = running.wait().expect(1).says("canceling statement due to user request");
    drop(server);
    places.clean();
}

/// A server's answers go out while it waits for the next request; its files come with the commit.
#[test]
fn nginx_serves_from_a_transaction() {
    for program in ["nginx", "curl", "openssl"] {
        require!(skip::has(program), "no {program}");
    }
    let places = Places::new();
    let mut port = HTTP;
    let serve = |lab: &Lab,
                 globals: &str,
                 port: u16,
                 running: &dyn Fn(Vec<String>) -> Running,
                 ends_by: Signal| {
        let dir = lab.tree();
        let _ = lab.native("rm -rf *");
        configure_nginx(dir, port, port + 1);
        let mut running = running(nginx_arguments(dir, globals));
        until("nginx listens", || {
            assert!(!running.ended(), "it has ended: {}", running.stderr());
            is_open(port)
        });
        let script = format!(
            "set -e
            for f in f1 f2 big; do curl -sS -m 60 http://127.0.0.1:{port}/$f | cmp - www/$f; done
            curl -sS -m 60 http://127.0.0.1:{port}/f1 http://127.0.0.1:{port}/big | cksum > ../kept-alive; cat www/f1 www/big | cksum | cmp - ../kept-alive
            curl -sS -m 60 --cacert cert.pem https://127.0.0.1:{0}/big | cmp - www/big
            curl -sS -m 60 --limit-rate 5M http://127.0.0.1:{port}/big | cmp - www/big
            curl -sS -m 60 -T www/f2 http://127.0.0.1:{port}/up/sent -w '%{{http_code}}'
            curl -sS -m 60 http://127.0.0.1:{port}/up/sent | cmp - www/f2",
            port + 1
        );
        let done = Invocation::shell(script).dir(dir).run().expect(0);
        assert_eq!(done.text(), "201", "{done:?}");
        // Not before the commit.
        assert_eq!(std::fs::read_dir(dir.join("logs")).unwrap().count(), 0);
        assert!(!dir.join("up/sent").exists());
        running.signal(ends_by);
        let done = running.wait();
        let log = std::fs::read_to_string(dir.join("logs/access.log")).unwrap_or_default();
        (done, log.lines().count(), dir.join("up/sent").exists())
    };
    for globals in ["", "master_process off;"] {
        for view in VIEWS {
            let start = |words: Vec<String>| {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                places.command(view, &words).start()
            };
            let ends_by = if view == View::Library { Signal::QUIT } else { Signal::TERM };
            let (done, requests, sent) = serve(places.of(view), globals, port, &start, ends_by);
            assert_eq!((done.code(), requests, sent), (0, 9, true), "{view:?} {globals}: {done:?}");
            port += 2;
        }
        // It is killed, and has written nothing.
        let start = |words: Vec<String>| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            places.command(View::Library, &words).start()
        };
        let (done, requests, sent) = serve(&places.library, globals, port, &start, Signal::KILL);
        assert!(done.killed() && requests == 0 && !sent, "{globals}: {done:?}");
        until("nobody listens any more", || !is_open(port));
        port += 2;
    }
    places.clean();
}
