//! The graph service: its executor alone, which needs nothing but cargo, and four replicas of it, which need Go and a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use txos_testkit::image::Image;
use txos_testkit::random::Random;
use txos_testkit::wait::until;
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

/// Blocks of requests that add edges to the first few vertices, whose files grow by that.
fn blocks_on_few(blocks: usize, hot: u64, vertices: u64, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::new();
    for _ in 0..blocks {
        for _ in 0..40 {
            let (from, to) = (random.below(hot), hot + random.below(vertices - hot));
            text += &format!("add {from} {to}\n");
        }
        text.push('\n');
    }
    text
}

/// Takes all space there is, in a file, but for so many bytes.
fn fill(file: &Path, spare: u64) {
    let file = fs::File::create(file).unwrap();
    let mut size = 0;
    for step in [1 << 20, 1 << 16, 1 << 12, 1 << 10] {
        while fallocate(&file, FallocateFlags::empty(), size, step).is_ok() {
            size += step;
        }
    }
    file.set_len(size.saturating_sub(spare)).unwrap();
    file.sync_all().unwrap();
}

/// The executor says that the disk is full and ends. Nothing of a block that was whole is lost; with space again it goes on after it.
#[test]
fn a_full_disk() {
    let lab = Lab::new();
    // Small blocks: a file that grows needs another one soon.
    let Some(image) = Image::mount_with(&lab, "ext4", &["-b", "1024"], 32, "small") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    let _ = graph(&lab, &["make", "graph", "1500", "6"]).run().expect(0);
    let blocks = blocks_on_few(30, 2, 1500, 7);
    fs::write(lab.path("blocks"), &blocks).unwrap();
    let few: String = blocks.split_inclusive("\n\n").take(3).collect();
    fs::write(lab.path("few"), few).unwrap();
    let expected = replay(&lab, "blocks", "plain");
    let height = || lab.read("work/state").split(' ').next().unwrap().parse::<u32>().unwrap();
    let go_on = |file: &str| graph(&lab, &["replay", "work", file, "2"]).run();
    for spare in [1 << 10, 0] {
        let _ = lab.native("rm -rf work; cp -r graph work");
        let _ = go_on("few").expect(0);
        fill(&lab.path("fill"), spare);
        // It may come further each time (what it had prepared is given back), and loses nothing.
        let (mut reached, mut refused) = (3, 0);
        for _ in 0..3 {
            let done = go_on("blocks");
            println!("with {spare} bytes: ended with {}, {} blocks", done.code(), height());
            assert!(height() >= reached);
            reached = height();
            if done.code() != 0 {
                let _ = done.expect(1).says("No space left on device");
                refused += 1;
            }
        }
        assert!(refused > 0, "there was space enough");
        fs::remove_file(lab.path("fill")).unwrap();
        let printed = go_on("blocks").expect(0).text();
        assert_eq!(line(&printed, "requests"), ((30 - reached) * 40).to_string());
        assert_eq!(line(&printed, "hash"), line(&expected, "hash"));
        let files = graph(&lab, &["hash", "work"]).run().expect(0).text();
        assert_eq!(files.trim(), line(&expected, "hash"));
    }
    let _ = lab.native("rm few");
    let _ = lab.native("rm -rf graph work blocks");
    lab.expect_clean();
}

/// Takes the first vertices in transactions outside of the order, until there is a file `stop`. `change` writes nonsense and aborts; `look`
/// finds each edge between two of them at both of its ends, whenever it has committed.
const PARTICIPANT: &str = r#"
import os, random, struct, sys, txos

kind, hot, chance = sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3])
tried = met = 0
print("ready", flush=True)
while not os.path.exists("stop"):
    tried += 1
    ends = {}
    try:
        with txos.transaction(durable=False):
            for vertex in chance.sample(range(hot), hot):
                fd = os.open(f"work/v/{vertex:05}", os.O_RDWR)
                try:
                    words = [word for (word,) in struct.iter_unpack("<I", os.read(fd, 1 << 16))]
                    ends[vertex] = words[2 : 2 + words[0]]
                    if kind == "change":
                        os.pwrite(fd, b"\xff" * 64, 0)
                finally:
                    os.close(fd)
            if kind == "change":
                raise KeyError
    except KeyError:
        continue
    except txos.Conflict:
        met += 1
        continue
    assert all((a in ends[b]) == (b in ends[a]) for a in ends for b in ends), ends
print(tried, met)
"#;

/// All requests want the same few vertices, and so do others' transactions. The answers and files are those of serial execution.
#[test]
fn a_storm_of_conflicts() {
    require!(skip::has("python3"), "no Python for the other participants");
    const HOT: u64 = 5;
    let lab = Lab::new();
    let _ = graph(&lab, &["make", "graph", "150", "8"]).run().expect(0);
    let mut random = Random::new(9);
    let mut blocks = String::new();
    for _ in 0..6 {
        for _ in 0..60 {
            let (from, by) = (random.below(HOT), 1 + random.below(HOT - 1));
            let verb = *random.pick(&["add", "add", "delete", "delete", "exists", "path"]);
            blocks += &format!("{verb} {from} {}\n", (from + by) % HOT);
        }
        blocks.push('\n');
    }
    fs::write(lab.path("blocks"), blocks).unwrap();
    let expected = replay(&lab, "blocks", "plain");
    assert!(line(&expected, "effective").parse::<u32>().unwrap() > 60, "{expected}");
    for threads in ["1", "2", "8"] {
        let _ = lab.native("rm -rf work stop; cp -r graph work");
        let participants = ["change", "change", "look"].map(|kind| {
            let library = binary::library();
            Invocation::new("python3")
                .args(["-c", PARTICIPANT, kind, &HOT.to_string(), threads])
                .dir(lab.tree())
                .env("PYTHONPATH", root().join("bindings/python"))
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .env("TXOS_LIB", library)
                .env("TXOS_STORE", lab.store())
                .env("TXOS_REALM", lab.realm())
                .start()
        });
        for participant in &participants {
            until("a participant is ready", || participant.stdout().starts_with("ready"));
        }
        let printed = graph(&lab, &["replay", "work", "blocks", threads]).run().expect(0).text();
        fs::write(lab.path("stop"), "").unwrap();
        let mut met = line(&printed, "aborts").parse::<u32>().unwrap();
        for participant in participants {
            let told = participant.wait().expect(0).text();
            println!(
                "{threads} threads: a participant tried, met: {}",
                told.lines().nth(1).unwrap_or_default()
            );
            met += told.trim().rsplit(' ').next().unwrap().parse::<u32>().unwrap();
        }
        println!("{threads} threads: {} aborts", line(&printed, "aborts"));
        assert!(met > 0, "nobody was in the way of anybody");
        for sum in SUMS {
            assert_eq!(line(&printed, sum), line(&expected, sum), "{threads} {sum}");
        }
        let files = graph(&lab, &["hash", "work"]).run().expect(0).text();
        assert_eq!(files.trim(), line(&expected, "hash"));
    }
    let _ = lab.native("rm -rf graph work blocks stop");
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
