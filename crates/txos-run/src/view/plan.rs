//! What of the tree a command has versioned, by the policy of [`txos_engine::scope`], and where its private copies
//! go. Pure decisions: nothing is mounted here.
//!
//! # Invariants
//!
//! - A layer's store is on the same *mount* as its target, so that a commit can rename.
//! - What is not a layer is *live*: seen and changed as it is.
//! - Trees that are never versioned ([`NEVER`]) are live even where they are plain directories.
//! - As root a layer is a whole mount (or a `--scope` directory), and mounts below are put back on
//!   top.
//! - In a user namespace ([`super::cover`]) layers are chosen directory by directory.

use std::collections::BTreeSet;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::Access;
use rustix::mount::MountAttrFlags;
use txos_engine::readset::Coverage;
use txos_engine::rights::is_privileged;
use txos_engine::scope::{self, NEVER, can_be_layer};
use txos_engine::store::{Home, Layer, LayerRequest, Transaction};

use super::cover::Cover;
use super::mounts::{self, Mount};
use crate::error::{Error, Result, Step};
use crate::options::RunOptions;

/// Everything that the view consists of.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Whether a user namespace is needed.
    pub rootless: bool,
    /// Mounts and directories put on top of layers as they are, parents before children; with
    /// their submounts if the flag says so.
    pub live: Vec<(PathBuf, bool)>,
    /// Excluded by the user: live, on top of everything.
    pub excluded: Vec<PathBuf>,
    /// Stores, made invisible.
    pub hidden: Vec<PathBuf>,
    /// Directories that the user can write but that can't be versioned, and why.
    pub unversioned: Vec<(PathBuf, String)>,
    /// Where changes are live though the user might not expect it: mount points and directories.
    pub live_places: Vec<PathBuf>,
    /// Patterns of the user's that nothing matches.
    pub unmatched: Vec<String>,
    /// Targets of the layers.
    pub layers: Vec<PathBuf>,
    /// What is recorded.
    pub coverage: Coverage,
    /// Whether the kernel alone serves the file system of the root directory.
    pub root_is_local: bool,
    /// Whether the view has a network of its own, of which only the loopback interface is there.
    pub no_network: bool,
    /// How what each of the layers lies over is mounted.
    pub attributes: Vec<MountAttrFlags>,
    /// The layers whose directory nobody asked for, in a user namespace: the search for the user's directories found
    /// it. Others may remove one before the view is there, and the command goes on without it.
    pub found: Vec<PathBuf>,
    /// Those of them that somebody has removed, or put another directory in the place of: what is there now is the outer
    /// layer's.
    pub missed: Vec<PathBuf>,
}

/// File systems that the kernel serves alone, from memory or from a device: no look at them waits for a
/// process of a user's, or for another machine.
const LOCAL: [&str; 9] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "tmpfs", "ramfs"];

/// The canonical, not nested directories that are in scope; none means everything.
fn scopes(asked: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut dirs = BTreeSet::new();
    for dir in asked {
        let path = dir.canonicalize().map_err(|source| Error::View {
            step: "looking up the scope".into(),
            path: dir.clone(),
            source,
            detail: String::new(),
        })?;
        if !path.is_dir() {
            return Err(Error::View {
                step: "looking up the scope".into(),
                path,
                source: rustix::io::Errno::NOTDIR.into(),
                detail: "; --scope wants directories".into(),
            });
        }
        dirs.insert(path);
    }
    let all: Vec<PathBuf> = dirs.iter().cloned().collect();
    dirs.retain(|d| !all.iter().any(|other| other != d && d.starts_with(other)));
    if dirs.contains(Path::new("/")) {
        dirs.clear();
    }
    Ok(dirs.into_iter().collect())
}

/// [`scope::is_never`].
#[must_use]
pub fn is_never(path: &Path) -> bool {
    scope::is_never(path.as_os_str().as_bytes())
}

/// The mounts that a path leads to. A command's begin asks three times; they are looked at once, unless they change.
fn visible() -> Result<Vec<Mount>> {
    static WATCHED: Mutex<Option<mounts::Watched>> = Mutex::new(None);
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let watched = match &mut *watched {
        Some(watched) => watched,
        none => none.insert(mounts::Watched::begin().step("reading the mount table")?),
    };
    Ok(watched.now().step("reading the mount table")?.to_vec())
}

fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let id = mounts::mount_id(path)?;
    mounts.iter().find(|m| m.id == id)
}

/// Finds (and makes) the store of each mount.
struct Stores<'a> {
    home: &'a Home,
    home_mount: Option<u64>,
}

impl Stores<'_> {
    /// A store on this mount, or why there is none.
    fn on(&self, mount: &Mount) -> std::result::Result<PathBuf, txos_engine::Error> {
        if self.home_mount == Some(mount.id) {
            return Ok(self.home.dir().to_owned());
        }
        self.home.side_store(&mount.point)
    }
}

/// The layers of a new transaction.
///
/// # Errors
/// If what the user asked for can't be versioned, with what to do about it.
pub fn layers(home: &Home, options: &RunOptions) -> Result<Vec<LayerRequest>> {
    let mounts = visible()?;
    let stores = Stores { home, home_mount: mounts::mount_id(home.dir()) };
    let scopes = scopes(&options.scope)?;
    let mut layers = Vec::new();
    if is_privileged() {
        let tops = if scopes.is_empty() { vec![PathBuf::from("/")] } else { scopes };
        for top in tops {
            layers.push(layer_or_error(&stores, &mounts, &top)?);
            for mount in below(&mounts, &top).filter(|m| !is_never(&m.point)) {
                if can_be_layer(mount)
                    && let Ok(store) = stores.on(mount)
                {
                    layers.push(LayerRequest { target: mount.point.clone(), store });
                }
            }
        }
        return Ok(layers);
    }
    let tops = if scopes.is_empty() { vec![PathBuf::from("/")] } else { scopes };
    for top in &tops {
        let mut roots = vec![top.clone()];
        roots.extend(below(&mounts, top).map(|m| m.point.clone()));
        for root in roots.iter().filter(|r| !is_never(r)) {
            if let Some(mount) = mount_of(&mounts, root)
                && can_be_layer(mount)
                && let Ok(store) = stores.on(mount)
            {
                layers.extend(
                    Cover::new(&mounts, mount, &store, options.working_directory().ok()).of(root),
                );
            }
        }
    }
    if layers.is_empty() {
        // Where the tree itself can't be versioned, that is what is said.
        for top in &tops {
            if mount_of(&mounts, top).is_some_and(|m| m.kind == "overlay") {
                return Err(on_overlay(top));
            }
        }
        return Err(Error::Unsupported {
            what: "nothing in scope can be versioned: no store of yours is on the same mount as any of it".into(),
            advice: "Set TXOS_STORE to a directory of yours on the mount of the files that the command changes.".into(),
        });
    }
    Ok(layers)
}

/// The mounts strictly below a directory.
pub fn below<'a>(mounts: &'a [Mount], top: &'a Path) -> impl Iterator<Item = &'a Mount> {
    mounts.iter().filter(move |m| m.point != top && m.point.starts_with(top))
}

/// Whether a directory can be versioned, by where it is.
fn can_be_named(top: &Path) -> Result<()> {
    if !is_never(top) {
        return Ok(());
    }
    let shown = txos_engine::show::quoted(top);
    Err(Error::Unsupported {
        what: format!(
            "{shown} is never versioned: /proc, /sys, /dev and /run are the running system's"
        ),
        advice: "Name another directory with --scope.".into(),
    })
}

/// The layer of a directory that must be versioned.
fn layer_or_error(stores: &Stores<'_>, mounts: &[Mount], top: &Path) -> Result<LayerRequest> {
    let unsupported =
        |what: String, advice: &str| Error::Unsupported { what, advice: advice.into() };
    let shown = txos_engine::show::quoted(top);
    can_be_named(top)?;
    let Some(mount) = mount_of(mounts, top) else {
        return Err(unsupported(
            format!(
                "{shown} is on no mount that this process can see (in a chroot the root directory has to be one)"
            ),
            "Bind-mount the directory onto itself first, or name another with --scope.",
        ));
    };
    if mount.kind == "overlay" {
        return Err(on_overlay(top));
    }
    if !mount.is_writable() {
        return Err(unsupported(
            format!("{shown} is mounted read-only, so that nothing can be published there"),
            "Remount it writable (mount -o remount,rw), or choose other directories with --scope.",
        ));
    }
    if !scope::versions_kind(&mount.kind) && top != Path::new("/") {
        return Err(unsupported(
            format!(
                "{shown} is on a {} file system, which can't be versioned",
                txos_engine::show::visible(mount.kind.as_bytes())
            ),
            "Choose a directory on ext4, xfs, btrfs, f2fs or tmpfs with --scope.",
        ));
    }
    Ok(LayerRequest { target: top.to_owned(), store: stores.on(mount)? })
}

fn on_overlay(top: &Path) -> Error {
    Error::Unsupported {
        what: format!(
            "{} is on an overlay file system (as in a container), which can't hold the private copies of another overlay",
            txos_engine::show::quoted(top)
        ),
        advice: "Mount a volume or a tmpfs over the directory that the command changes, and run with --scope DIRECTORY; or start the container with such a volume there and TXOS_STORE on it.".into(),
    }
}

/// The view of a transaction that has its layers; `begins` if no command has run in it yet.
///
/// # Errors
/// If the mount table can't be read or an exclude pattern is malformed.
pub fn view(home: &Home, tx: &Transaction, options: &RunOptions, begins: bool) -> Result<Plan> {
    let mounts = visible()?;
    let layers = tx.layers();
    let is_layer = |path: &Path| layers.iter().any(|l| l.target == path);
    let in_layer = |path: &Path| layers.iter().any(|l| path.starts_with(&l.target));
    let whole = is_layer(Path::new("/"));
    let root_is_local = |m: &Mount| m.point == Path::new("/") && LOCAL.contains(&&*m.kind);
    let mut plan = Plan {
        rootless: !is_privileged(),
        no_network: options.limits.no_network,
        root_is_local: mounts.iter().any(root_is_local),
        ..Plan::default()
    };

    let mut recursive: Vec<PathBuf> = Vec::new();
    for never in NEVER.map(PathBuf::from) {
        if in_layer(&never) && never.is_dir() {
            plan.live.push((never.clone(), true));
            recursive.push(never);
        }
    }
    for mount in &mounts {
        if !is_layer(&mount.point)
            && in_layer(&mount.point)
            && !recursive.iter().any(|r| mount.point.starts_with(r))
        {
            plan.live.push((mount.point.clone(), false));
            plan.live_places.push(mount.point.clone());
        }
    }
    plan.live.sort();
    (plan.excluded, plan.unmatched) = excluded(&options.exclude)?;
    plan.layers = layers.iter().map(|l| l.target.clone()).collect();
    let attributes = |path: &Path| mount_of(&mounts, path).map(Mount::attributes);
    plan.attributes =
        layers.iter().map(|l| attributes(&l.target).unwrap_or(MountAttrFlags::empty())).collect();
    plan.hidden = home.stores()?;
    plan.hidden.retain(|s| s.is_dir());
    if plan.rootless {
        plan.unversioned = unversioned(&mounts, tx, options)?;
        plan.found = found(&layers, options, begins)?;
        for layer in layers.iter().filter(|layer| plan.found.contains(&layer.target)) {
            if layer.is_dispensable(&layers).map_err(Error::from)? {
                plan.layers.retain(|target| *target != layer.target);
                plan.missed.push(layer.target.clone());
            }
        }
    }

    let bytes = |p: &PathBuf| p.as_os_str().as_bytes().to_vec();
    let coverage = &mut plan.coverage;
    if !options.scope.is_empty() {
        coverage.only_under = layers.iter().map(|l| bytes(&l.target)).collect();
    } else if !whole && !plan.rootless {
        // A transaction that was begun with --scope and goes on without it.
        coverage.only_under = layers.iter().map(|l| bytes(&l.target)).collect();
    }
    coverage.never_under = NEVER.iter().map(|n| n.as_bytes().to_vec()).collect();
    coverage.never_under.extend(plan.live_places.iter().map(bytes));
    coverage.never_under.extend(plan.excluded.iter().map(bytes));
    coverage.never_under.extend(plan.hidden.iter().map(bytes));
    let layer_devices: Vec<u64> =
        layers.iter().filter_map(|l| mount_of(&mounts, &l.target).map(|m| m.dev)).collect();
    coverage.never_on = mounts
        .iter()
        .filter(|m| !scope::versions_kind(&m.kind) && !layer_devices.contains(&m.dev))
        .map(|m| m.dev)
        .collect();
    coverage.never_on.sort_unstable();
    coverage.never_on.dedup();
    Ok(plan)
}

/// What `--scope` and `--exclude` leave of the tree, for a command without an overlay; and the patterns that nothing matches.
///
/// # Errors
/// If a tree is not there, or is no directory, or if a pattern is malformed.
pub fn scope_of(scope: &[PathBuf], exclude: &[String]) -> Result<(scope::Scope, Vec<String>)> {
    let bytes = |paths: Vec<PathBuf>| {
        paths.into_iter().map(|path| path.into_os_string().into_vec()).collect()
    };
    let (only, (without, unmatched)) = (scopes(scope)?, excluded(exclude)?);
    only.iter().try_for_each(|top| can_be_named(top))?;
    Ok((scope::Scope { only: bytes(only), without: bytes(without) }, unmatched))
}

/// The layers that [`Plan::found`] names. A pending transaction does not say which directories its `--scope` named:
/// there, only a layer in another one counts, because what is made anew at its path is versioned by the outer one.
fn found(layers: &[Layer], options: &RunOptions, begins: bool) -> Result<Vec<PathBuf>> {
    let asked = scopes(&options.scope)?;
    let is_found = |layer: &Layer| match begins {
        true => !asked.contains(&layer.target),
        false => layer.is_inside(layers),
    };
    Ok(layers.iter().filter(|layer| is_found(layer)).map(|layer| layer.target.clone()).collect())
}

/// Every existing match of the `--exclude` patterns, canonical; and the patterns without one.
fn excluded(patterns: &[String]) -> Result<(Vec<PathBuf>, Vec<String>)> {
    let mut found = BTreeSet::new();
    let mut unmatched = Vec::new();
    for given in patterns {
        // What is below a directory is left out with it: a name that is made there later can't be matched now.
        let pattern = given.strip_suffix("/**").filter(|dir| !dir.is_empty()).unwrap_or(given);
        let full = if pattern.starts_with('/') {
            pattern.to_owned()
        } else {
            let here = std::env::current_dir().step("finding the working directory")?;
            format!("{}/{pattern}", glob::Pattern::escape(&here.to_string_lossy()))
        };
        let matches = glob::glob(&full).map_err(|e| Error::Unsupported {
            what: format!("--exclude {given:?} is not a pattern ({e})"),
            advice: "Patterns are those of the shell: *, ?, [...], ** for any depth.".into(),
        })?;
        let matches: Vec<PathBuf> =
            matches.flatten().filter_map(|p| p.canonicalize().ok()).collect();
        if matches.is_empty() {
            unmatched.push(given.clone());
        }
        found.extend(matches);
    }
    let all: Vec<PathBuf> = found.iter().cloned().collect();
    found.retain(|d| !all.iter().any(|other| other != d && d.starts_with(other)));
    Ok((found.into_iter().collect(), unmatched))
}

/// Directories in scope that the user can write but that are no layer and in none.
fn unversioned(
    mounts: &[Mount],
    tx: &Transaction,
    options: &RunOptions,
) -> Result<Vec<(PathBuf, String)>> {
    let layers = tx.layers();
    let mut tops = scopes(&options.scope)?;
    if tops.is_empty() {
        tops.push(PathBuf::from("/"));
    }
    let mut candidates: BTreeSet<PathBuf> = BTreeSet::new();
    for mount in mounts.iter().filter(|m| tops.iter().any(|t| m.point.starts_with(t))) {
        // The directories above a mount are those that can't be covered whole.
        candidates.extend(mount.point.ancestors().map(Path::to_path_buf));
    }
    candidates.retain(|dir| {
        !is_never(dir)
            && tops.iter().any(|t| dir.starts_with(t))
            && !layers.iter().any(|l| dir.starts_with(&l.target))
            && rustix::fs::access(dir, Access::WRITE_OK).is_ok()
    });
    Ok(candidates
        .into_iter()
        .map(|dir| {
            let why = match below(mounts, &dir).next() {
                Some(m) => format!("{} is mounted below it", txos_engine::show::quoted(&m.point)),
                None => "no store of yours is on its mount".to_owned(),
            };
            (dir, why)
        })
        .collect())
}
