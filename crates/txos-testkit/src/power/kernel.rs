//! A kernel from the distribution's package. The package is unpacked, never installed: installing it
//! would change what this machine boots.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

/// The package that depends on the newest kernel.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What a boot loader loads.
    pub image: PathBuf,
    /// Its release, as uname(1) says it.
    pub release: String,
    modules: PathBuf,
}

impl Kernel {
    /// The kernel of Debian's cloud images, from the package archive; kept below `cache`.
    ///
    /// # Errors
    /// Why it can't be had here: no apt, no network, no such package.
    pub fn debian(cache: &Path) -> Result<Kernel, String> {
        std::fs::create_dir_all(cache).map_err(|e| format!("{}: {e}", cache.display()))?;
        // Several tests may want it at once.
        let lock = File::create(cache.join("lock")).map_err(|e| e.to_string())?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| e.to_string())?;
        let unpacked = cache.join("kernel");
        if let Some(kernel) = Self::unpacked(&unpacked) {
            return Ok(kernel);
        }
        let package = newest().or_else(|_| {
            said(Command::new("apt-get").args(["update", "-qq"]))?;
            newest()
        })?;
        let temporary = cache.join("kernel.new");
        let _ = std::fs::remove_dir_all(&temporary);
        std::fs::create_dir_all(&temporary).map_err(|e| e.to_string())?;
        let download = ["-q", "-o", "APT::Sandbox::User=root", "download", &package];
        said(Command::new("apt-get").args(download).current_dir(&temporary))?;
        let archive = entries(&temporary).pop().ok_or("apt-get has downloaded nothing")?;
        said(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&temporary))?;
        std::fs::remove_file(&archive).map_err(|e| e.to_string())?;
        std::fs::rename(&temporary, &unpacked).map_err(|e| e.to_string())?;
        Self::unpacked(&unpacked).ok_or_else(|| format!("there is no kernel in {package}"))
    }

    fn unpacked(dir: &Path) -> Option<Kernel> {
        let image = entries(&dir.join("boot")).into_iter().find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        })?;
        let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        let modules = dir.join("lib/modules").join(&release).join("kernel");
        modules.is_dir().then_some(Kernel { image, release, modules })
    }

    /// The files of modules, each after those that it depends on. What is part of the kernel itself
    /// has no file.
    ///
    /// # Panics
    /// If the modules can't be read.
    #[must_use]
    pub fn modules(&self, names: &[&str]) -> Vec<PathBuf> {
        let mut all = Vec::new();
        collect(&self.modules, &mut all);
        let mut found = Vec::new();
        for name in names {
            with_dependencies(name, &all, &mut found);
        }
        found
    }
}

fn newest() -> Result<String, String> {
    let text = said(Command::new("apt-cache").args(["depends", META_PACKAGE]))?;
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .map(str::to_owned)
        .ok_or_else(|| format!("no package {META_PACKAGE}"))
}

fn said(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown}: {}", errors.lines().last().unwrap_or("failed")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) {
    for path in entries(dir) {
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "ko") {
            into.push(path);
        }
    }
}

fn with_dependencies(name: &str, all: &[PathBuf], found: &mut Vec<PathBuf>) {
    let same = |path: &&PathBuf| {
        path.file_stem().is_some_and(|stem| stem.to_string_lossy().replace('-', "_") == name)
    };
    let Some(path) = all.iter().find(same) else { return };
    if found.contains(path) {
        return;
    }
    let bytes = std::fs::read(path).expect("reading a module");
    for needed in depends(&bytes).split(',').filter(|name| !name.is_empty()) {
        with_dependencies(&needed.replace('-', "_"), all, found);
    }
    found.push(path.clone());
}

/// The entry `depends` of a module's section `.modinfo`.
fn depends(module: &[u8]) -> String {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return String::new();
    };
    let value = module.get(at + KEY.len()..).unwrap_or_default();
    let end = value.iter().position(|&b| b == 0).unwrap_or(0);
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}
