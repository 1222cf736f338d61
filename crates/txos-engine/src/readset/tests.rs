use std::fs;
use std::path::PathBuf;

use super::validate::{Published, Terms};
use super::*;
use crate::object::Facets;

struct Dir(PathBuf);

impl Dir {
    fn new(tag: &str) -> Self {
        let path = std::env::temp_dir().join(format!("txos-reads-{tag}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Dir(path.canonicalize().unwrap())
    }
    fn at(&self, name: &str) -> Vec<u8> {
        self.0.join(name).into_os_string().into_encoded_bytes()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn conflicts(set: &ReadSet) -> Vec<String> {
    set.validate(Terms::default(), &Published::default()).into_iter().map(|c| c.what).collect()
}

#[test]
fn unrelated_changes_are_no_conflict() {
    let d = Dir::new("unrelated");
    fs::write(d.0.join("a"), "a").unwrap();
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("a"), true, Facets::ATTRS | Facets::DATA);
    set.note(&d.at("missing"), true, Facets::ENTRY);
    set.note(&d.at("."), true, Facets::ATTRS);
    fs::write(d.0.join("b"), "b").unwrap();
    assert!(conflicts(&set).is_empty(), "{:?}", conflicts(&set));
}

#[test]
fn each_facet_is_noticed() {
    let d = Dir::new("facets");
    fs::write(d.0.join("a"), "a").unwrap();
    fs::create_dir(d.0.join("sub")).unwrap();
    std::os::unix::fs::symlink("a", d.0.join("link")).unwrap();
    let fresh = |path: &str, facets| {
        let mut set = ReadSet::new(Coverage::default());
        set.note(&d.at(path), true, facets);
        set
    };
    let data = fresh("link", Facets::DATA);
    let absent = fresh("new", Facets::ENTRY);
    let listing = fresh("sub", Facets::LISTING);
    let below = fresh("nodir/x", Facets::ENTRY);
    assert!([&data, &absent, &listing, &below].iter().all(|s| conflicts(s).is_empty()));
    fs::write(d.0.join("a"), "b").unwrap();
    fs::write(d.0.join("new"), "").unwrap();
    fs::write(d.0.join("sub/x"), "").unwrap();
    fs::create_dir(d.0.join("nodir")).unwrap();
    assert_eq!(conflicts(&data), ["its content was changed"]);
    assert_eq!(conflicts(&absent), ["it did not exist and was created (file)"]);
    assert_eq!(conflicts(&listing), ["names in it were added or removed"]);
    assert_eq!(conflicts(&below), ["it did not exist and was created"]);
}

#[test]
fn what_passes_through_a_fifo_is_no_change_of_it() {
    let d = Dir::new("fifo");
    let path = d.0.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("fifo"), true, Facets::ATTRS | Facets::DATA);
    let mut both = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut both, b"x").unwrap();
    assert!(conflicts(&set).is_empty());
    fs::hard_link(&path, d.0.join("second")).unwrap();
    assert_eq!(conflicts(&set), ["its number of links was changed"]);
}

#[test]
fn a_name_that_came_and_went_is_no_conflict() {
    let d = Dir::new("came-and-went");
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at(""), true, Facets::LISTING);
    fs::write(d.0.join("temp"), "").unwrap();
    fs::remove_file(d.0.join("temp")).unwrap();
    assert!(conflicts(&set).is_empty());
}

#[test]
fn what_is_not_covered_is_not_kept() {
    let d = Dir::new("coverage");
    fs::create_dir_all(d.0.join("in")).unwrap();
    fs::create_dir_all(d.0.join("out")).unwrap();
    fs::write(d.0.join("in/f"), "").unwrap();
    std::os::unix::fs::symlink("../in/f", d.0.join("out/link")).unwrap();
    let mut set = ReadSet::new(Coverage { only_under: vec![d.at("in")], ..Coverage::default() });
    set.note(&d.at("out/x"), true, Facets::ENTRY);
    assert!(set.is_empty());
    set.note(&d.at("out/link"), true, Facets::DATA);
    assert!(set.get(&d.at("in/f")).is_some());
    set.note(&d.at("in"), true, Facets::ATTRS);
    assert!(set.get(&d.at("in")).is_some());
}

#[test]
fn bytes_and_back() {
    let d = Dir::new("bytes");
    let mut set = ReadSet::new(Coverage::default());
    set.note(&d.at("x"), true, Facets::ENTRY);
    set.note(&d.at(""), true, Facets::LISTING);
    let bytes = set.to_bytes().unwrap();
    let back = ReadSet::from_bytes(&bytes, "t".as_ref()).unwrap();
    assert_eq!(back.len(), set.len());
    for cut in 0..bytes.len() {
        assert!(ReadSet::from_bytes(&bytes[..cut], "t".as_ref()).is_err());
    }
    let mut flipped = bytes.clone();
    for i in 0..bytes.len() {
        flipped[i] ^= 0x40;
        assert!(ReadSet::from_bytes(&flipped, "t".as_ref()).is_err(), "byte {i}");
        flipped[i] ^= 0x40;
    }
}
