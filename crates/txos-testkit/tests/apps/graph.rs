//! The graph service: its executor alone, which needs nothing but cargo, and four replicas of it, which need Go and a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use txos_testkit::image::Image;
use txos_testkit::{Invocation, Lab, binary, require, skip};

use crate::{Python, build, root};

/// It is built from nothing, with all that it depends on.
const BUILD_MAX: Duration = Duration::from_secs(900);

/// What compares executions.
const SUMS: [&str; 3] = ["hash", "hashes", "answers"];

fn cargo(args: &[&str]) -> Invocation {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let dir = binary::library().parent().expect("a directory");
    Invocation::new(cargo)
        .args(args)
        .dir(root().join("apps/graph/executor"))
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("graph"))
        .env("TXOS_LIB_DIR", dir)
        .env("LD_LIBRARY_PATH", dir)
        .within(BUILD_MAX)
}

/// The executor, built once. What it depends on the library under test has been built with already.
fn executor() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let _ = cargo(&["build", "--locked", "--offline", "--quiet"]).run().expect(0);
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("graph/debug/graph")
    };
    BUILT.get_or_init(build).clone()
}

fn graph(lab: &Lab, args: &[&str]) -> Invocation {
    Invocation::new(executor())
        .args(args)
        .dir(lab.tree())
        .env("LD_LIBRARY_PATH", binary::library().parent().expect("a directory"))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
}

/// A line of what a replay has printed.
fn line<'a>(printed: &'a str, name: &str) -> &'a str {
    let found = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name} in {printed}"))
}

/// Executes recorded blocks on a copy of a graph, and gives what was printed. The files are those that the hash says.
fn replay(lab: &Lab, file: &str, how: &str) -> String {
    let _ = lab.native("rm -rf work; cp -r graph work");
    let printed = graph(lab, &["replay", "work", file, how]).run().expect(0).text();
    let files = graph(lab, &["hash", "work"]).run().expect(0).text();
    assert_eq!(files.trim(), line(&printed, "hash"));
    printed
}

#[test]
fn format_lints_and_unit_tests() {
    let _ = cargo(&["fmt", "--check"]).run().expect(0);
    let lints = ["--all-targets", "--locked", "--offline", "--quiet", "--", "-D", "warnings"];
    let _ = cargo(&[&["clippy"], &lints[..]].concat()).run().expect(0);
    let _ = cargo(&["test", "--locked", "--offline", "--quiet"]).run().expect(0);
}

/// Every number of threads gives the files and answers that one request after the other gives, for every mix.
#[test]
fn threads_change_no_answer_and_no_file() {
    let lab = Lab::new();
    let _ = graph(&lab, &["make", "graph", "150", "1"]).run().expect(0);
    let mut effective = 0_u32;
    for writes in ["0", "5", "10", "50", "100"] {
        let record = ["record", "graph", "3", "30", writes, "20", writes];
        let recorded = graph(&lab, &record).run().expect(0).text();
        // A few that are no requests: they are refused, and take no turn.
        let text = recorded.replacen('\n', "\nadd 1 1\nadd 1 150\nfind 1 2\n", 1);
        fs::write(lab.path("blocks"), text).unwrap();
        let expected = replay(&lab, "blocks", "plain");
        assert_eq!(line(&expected, "requests"), "93");
        effective += line(&expected, "effective").parse::<u32>().unwrap();
        for threads in ["1", "2", "4"] {
            let printed = replay(&lab, "blocks", threads);
            for sum in SUMS {
                assert_eq!(line(&printed, sum), line(&expected, sum), "{writes} {threads} {sum}");
            }
        }
    }
    assert!(effective > 50, "{effective}");
    let _ = lab.native("rm -rf graph work blocks");
    lab.expect_clean();
}

/// An executor that is killed in the middle of blocks takes back what is half done, and goes on to the same end.
#[test]
fn a_killed_executor_goes_on_where_it_was() {
    let lab = Lab::new();
    let _ = graph(&lab, &["make", "graph", "150", "2"]).run().expect(0);
    let record = ["record", "graph", "12", "40", "60", "0", "9"];
    fs::write(lab.path("blocks"), graph(&lab, &record).run().expect(0).text()).unwrap();
    let expected = replay(&lab, "blocks", "plain");
    let _ = lab.native("rm -rf work; cp -r graph work");
    let height = || -> u32 {
        let state = lab.read("work/state");
        state.split(' ').next().and_then(|word| word.parse().ok()).expect("a height")
    };
    for wanted in [2, 5, 8] {
        let mut running = graph(&lab, &["replay", "work", "blocks", "2"]).start();
        while height() < wanted && !running.ended() {
            std::thread::sleep(Duration::from_micros(200));
        }
        running.signal(rustix::process::Signal::KILL);
        let _ = running.wait();
    }
    let printed = graph(&lab, &["replay", "work", "blocks", "2"]).run().expect(0).text();
    assert_eq!(line(&printed, "height"), "12");
    assert_eq!(line(&printed, "hash"), line(&expected, "hash"));
    assert_eq!(graph(&lab, &["hash", "work"]).run().text().trim(), line(&expected, "hash"));
    let _ = lab.txos(["recover"]).run().expect(0);
    let _ = lab.native("rm -rf graph work blocks");
    lab.expect_clean();
}

/// Whole requests of a block that is not whole: as if the executor had been killed right before the end of the block.
#[test]
fn a_block_is_taken_back_and_executed_again() {
    let lab = Lab::new();
    let _ = graph(&lab, &["make", "graph", "150", "5"]).run().expect(0);
    let record = ["record", "graph", "4", "40", "60", "0", "9"];
    let blocks = graph(&lab, &record).run().expect(0).text();
    fs::write(lab.path("blocks"), &blocks).unwrap();
    let (three, _) = blocks.trim_end().rsplit_once("\n\n").expect("several blocks");
    fs::write(lab.path("three"), format!("{three}\n\n")).unwrap();
    let _ = replay(&lab, "three", "2");
    let _ = lab.native("cp work/state old");
    let go_on = || graph(&lab, &["replay", "work", "blocks", "2"]).run().expect(0).text();
    let (expected, _) = (go_on(), lab.native("cp old work/state"));
    let printed = go_on();
    assert_eq!((line(&printed, "height"), line(&printed, "requests")), ("4", "40"));
    assert_ne!(line(&printed, "taken-back"), "0");
    for sum in SUMS {
        assert_eq!(line(&printed, sum), line(&expected, sum), "{sum}");
    }
    let _ = lab.native("rm -rf graph work blocks three old");
    lab.expect_clean();
}

/// A file that others have changed is reported, and nothing is executed on it.
#[test]
fn damaged_files_are_reported() {
    let lab = Lab::new();
    let _ = graph(&lab, &["make", "graph", "50", "3"]).run().expect(0);
    fs::write(lab.path("blocks"), "path 3 40\n\n").unwrap();
    let _ = lab.native("cp graph/v/00003 graph/v/00004");
    let _ = graph(&lab, &["replay", "graph", "blocks", "2"]).run().expect(1).says("damaged");
    let _ = lab.native("echo x > graph/v/00004");
    let _ = graph(&lab, &["replay", "graph", "blocks", "2"]).run().expect(1).says("vertex 4");
    let _ = lab.native("rm graph/v/00004");
    let _ = graph(&lab, &["replay", "graph", "blocks", "2"]).run().expect(1).says("vertex 4");
    let _ = graph(&lab, &["replay", "graph", "blocks", "two"]).run().expect(2).says("usage");
}

/// The neighbours in the file of a vertex: their number, the number of changes, and they themselves.
fn neighbours(lab: &Lab, vertex: usize) -> Vec<usize> {
    let bytes = fs::read(lab.path(format!("graph/v/{vertex:05}"))).unwrap();
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let words: Vec<usize> = words.map(|word| word as usize).collect();
    words[2..2 + words[0]].to_vec()
}

/// By the commands that a replica gives: paths are paths, and none is shorter.
#[test]
fn paths_are_shortest() {
    const VERTICES: usize = 120;
    let lab = Lab::new();
    let _ = graph(&lab, &["make", "graph", "120", "4"]).run().expect(0);
    let all: Vec<Vec<usize>> = (0..VERTICES).map(|vertex| neighbours(&lab, vertex)).collect();
    let targets: Vec<usize> = (0..VERTICES).step_by(7).collect();
    let mut commands = format!("info\ncheck path 1\nblock {}\n", targets.len());
    for target in &targets {
        commands += &format!("path 5 {target}\n");
    }
    let done = graph(&lab, &["serve", "graph", "2"]).input(commands + "commit\n").run().expect(0);
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("0 ") && lines[1].starts_with("no "), "{text}");
    let mut distance = vec![usize::MAX; VERTICES];
    distance[5] = 0;
    for step in 0..VERTICES {
        for vertex in (0..VERTICES).filter(|&v| distance[v] == step).collect::<Vec<_>>() {
            for &next in &all[vertex] {
                distance[next] = distance[next].min(step + 1);
            }
        }
    }
    for (target, line) in targets.iter().zip(&lines[2..]) {
        let path = line.strip_prefix("ok path ").expect("a path").split(' ');
        let path: Vec<usize> = path.map(|word| word.parse().unwrap()).collect();
        assert_eq!((path.first(), path.last()), (Some(&5), Some(target)), "{line}");
        assert!(path.windows(2).all(|step| all[step[0]].contains(&step[1])), "{line}");
        assert_eq!(path.len() - 1, distance[*target], "{line}");
    }
    assert_eq!(lines[2 + targets.len() + 1], "ok");
    let _ = lab.native("rm -rf graph");
    lab.expect_clean();
}

/// Four replicas on localhost agree, and go on when one is killed, paused or corrupted.
#[test]
fn four_replicas() {
    require!(skip::long("apps"), "it fetches CometBFT and builds it: ./test --long apps");
    require!(
        ["python3", "go", "cc"].into_iter().all(skip::has),
        "there is no Python, Go or compiler"
    );
    let lab = Lab::new();
    let built = match replicas() {
        Ok(built) => built.to_string_lossy().into_owned(),
        Err(why) => return skip::say(&format!("the replica can't be built: {why}")),
    };
    // (With a journal, which the commits of few files go by.)
    let Some(image) = Image::mount(&lab, "ext4", 1024, "disk") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    for test in ["they_agree", "one_is_killed", "one_is_paused", "one_is_corrupted"] {
        let test = format!("tests.test_replicas.Four.test_{test}");
        Python::new(&lab, "graph").env("TXOS_GRAPH", &built).run(&test);
    }
}

/// The executor and the replica; an error says why they could not be built.
fn replicas() -> Result<PathBuf, String> {
    if let Some(there) = std::env::var_os("TXOS_GRAPH") {
        return Ok(PathBuf::from(there));
    }
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replicas");
    let _ = fs::remove_file(to.join("replica"));
    build("graph", &to)?;
    to.join("replica").exists().then_some(to).ok_or_else(|| "no replica was built".into())
}
