//! Random renames, held against a tree in which every object carries its number.

use std::collections::BTreeMap;

use super::Places;

/// A tree in full: path → number of the object. Numbers are given once and stay.
#[derive(Clone, Default)]
struct Whole(BTreeMap<Vec<u8>, usize>);

fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.len() > top.len() && path.starts_with(top) && path[top.len()] == b'/'
}

impl Whole {
    /// Takes an object with everything below it out.
    fn take(&mut self, top: &[u8]) -> Vec<(Vec<u8>, usize)> {
        let all: Vec<Vec<u8>> =
            self.0.keys().filter(|p| *p == top || is_below(p, top)).cloned().collect();
        all.into_iter()
            .map(|path| (path[top.len()..].to_vec(), self.0.remove(&path).unwrap()))
            .collect()
    }

    fn put(&mut self, top: &[u8], tree: Vec<(Vec<u8>, usize)>) {
        for (below, number) in tree {
            self.0.insert([top, &below].concat(), number);
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Every path over two names and a store, down to a depth.
fn beginning(random: &mut Random) -> Whole {
    let mut whole = Whole::default();
    let mut dirs = vec![b"".to_vec()];
    for _ in 0..14 {
        let dir = dirs[random.below(dirs.len())].clone();
        let name = [b"a", b"b", b"c", b"d"][random.below(4)];
        let path = [&dir[..], b"/", &name[..]].concat();
        let number = whole.0.len();
        if whole.0.insert(path.clone(), number).is_none() {
            dirs.push(path);
        } else {
            // The number was taken by an insertion over itself; numbers stay distinct.
            whole.0.insert(path, number + 1000);
        }
    }
    whole
}

fn some_path(whole: &Whole, random: &mut Random) -> Vec<u8> {
    let all: Vec<&Vec<u8>> = whole.0.keys().collect();
    all[random.below(all.len())].clone()
}

/// One random rename or exchange that the kernel would carry out, in both.
fn step(
    whole: &mut Whole,
    places: &mut Places,
    random: &mut Random,
) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let from = some_path(whole, random);
    if random.below(3) == 0 {
        let other = some_path(whole, random);
        if other == from || is_below(&other, &from) || is_below(&from, &other) {
            return None;
        }
        let (one, two) = (whole.take(&from), whole.take(&other));
        whole.put(&from, two);
        whole.put(&other, one);
        places.exchange(&from, &other);
        return Some((from, other, true));
    }
    let dir = if random.below(4) == 0 { b"".to_vec() } else { some_path(whole, random) };
    let name = [b"a", b"b", b"c", b"d", b"e"][random.below(5)];
    let to = [&dir[..], b"/", &name[..]].concat();
    if dir == from || is_below(&dir, &from) || whole.0.contains_key(&to) {
        return None;
    }
    let tree = whole.take(&from);
    whole.put(&to, tree);
    places.rename(&from, &to);
    Some((from, to, false))
}

fn agree(before: &Whole, after: &Whole, places: &Places, seed: u64) {
    for (path, number) in &before.0 {
        let now = places.now(path);
        assert_eq!(after.0.get(&now), Some(number), "seed {seed}: {}", path.escape_ascii());
    }
    for (path, number) in &after.0 {
        let object = places.object(&places.entry(path)).unwrap();
        assert_eq!(before.0.get(&object), Some(number), "seed {seed}: {}", path.escape_ascii());
        assert_eq!(places.now(&object), *path, "seed {seed}");
    }
    // A name that came or went did so in the directory that is meant.
    let names = |whole: &Whole, dir: &[u8]| -> Vec<Vec<u8>> {
        let below = whole.0.keys().filter(|p| is_below(p, dir));
        below.map(|p| p[dir.len() + 1..].to_vec()).filter(|n| !n.contains(&b'/')).collect()
    };
    for dir in before.0.keys().cloned().chain([b"".to_vec()]) {
        let object = if dir.is_empty() { b"/".to_vec() } else { dir.clone() };
        let mut expected = names(before, &dir);
        for (at, name, exists) in places.changed_names() {
            if at != object {
                continue;
            }
            if exists {
                assert!(!expected.contains(&name.to_vec()), "seed {seed}");
                expected.push(name.to_vec());
            } else {
                expected.retain(|n| n != name);
            }
        }
        expected.sort();
        let now = if dir.is_empty() { dir } else { places.now(&dir) };
        assert_eq!(names(after, &now), expected, "seed {seed}: {}", object.escape_ascii());
    }
}

#[test]
fn random_renames_lead_where_the_tree_says() {
    let mut done = 0;
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let before = beginning(&mut random);
        let (mut after, mut places) = (before.clone(), Places::default());
        for _ in 0..random.below(12) {
            done += usize::from(step(&mut after, &mut places, &mut random).is_some());
            agree(&before, &after, &places, seed);
        }
    }
    assert!(done > 5_000, "only {done} renames were carried out");
}

#[test]
fn the_way_back_leads_to_the_beginning() {
    for seed in 0..1_000 {
        let mut random = Random(seed);
        let before = beginning(&mut random);
        let (mut after, mut places) = (before.clone(), Places::default());
        let steps: Vec<_> =
            (0..10).filter_map(|_| step(&mut after, &mut places, &mut random)).collect();
        for (from, to, exchange) in steps.iter().rev() {
            if *exchange { places.exchange(to, from) } else { places.rename(to, from) }
        }
        assert!(!places.anything_moved(), "seed {seed}");
        assert_eq!(places.changed_names().count(), 0, "seed {seed}");
    }
}

#[test]
fn a_new_name_is_of_the_same_object() {
    let mut places = Places::default();
    places.rename(b"/d", b"/x");
    places.link(b"/x/f", b"/x/g");
    assert_eq!(places.object(&places.entry(b"/x/g")), Some(b"/d/f".to_vec()));
    assert_eq!(places.existed(b"/d/g"), Some(false));
    assert_eq!(places.now(b"/d/f"), b"/x/f");
    assert_eq!(places.now_of_entry(b"/d/g"), b"/x/g");
}
