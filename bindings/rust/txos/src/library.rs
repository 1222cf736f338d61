//! libtxos.so: where it is, and its functions.
//!
//! Looked for in this order; the first that is there is taken:
//!
//! 1. one that the process has loaded already: two in one process would not know of each other
//! 2. the file that `TXOS_LIB` names
//! 3. where the dynamic linker looks
//! 4. `/usr/local/lib/txos`, `/usr/lib/txos`
//! 5. beside the program, and in the directory above, as in a checkout's target directory
//!
//! # Safety
//!
//! Unsafe here is calling the dynamic linker, and functions by the types that txos.h gives them.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The library's file name.
const NAME: &str = "libtxos.so";

#[cfg_attr(feature = "link", link(name = "txos"))]
unsafe extern "C" {
    #[cfg(feature = "link")]
    fn txos_version() -> *const c_char;
    fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// Keeps the linker from leaving out a library of which nothing is called by name.
#[cfg(feature = "link")]
#[used]
static LINKED: unsafe extern "C" fn() -> *const c_char = txos_version;

const RTLD_NOW: c_int = 2;
const RTLD_NOLOAD: c_int = 4;

/// `struct txos_abort`.
#[repr(C)]
pub struct CAbort {
    pub size: u32,
    pub reason: u32,
    pub error: i32,
    pub pid: i32,
    pub what: [u8; 256],
    pub path: [u8; 4096],
}

const _: () = assert!(size_of::<CAbort>() == 16 + 256 + 4096);

/// `struct txos_stats`.
#[repr(C)]
#[derive(Default)]
pub struct CStats {
    pub size: u32,
    pub version: u32,
    pub counters: [u64; 8],
}

const _: () = assert!(size_of::<CStats>() == 72);

/// The functions.
#[derive(Debug)]
pub struct Library {
    pub begin: unsafe extern "C" fn(c_int, ...) -> c_int,
    pub end: unsafe extern "C" fn() -> c_int,
    pub abort: unsafe extern "C" fn(c_int),
    pub pause: unsafe extern "C" fn() -> c_long,
    pub resume: unsafe extern "C" fn(c_long) -> c_int,
    pub strerror: unsafe extern "C" fn() -> *const c_char,
    pub in_transaction: unsafe extern "C" fn() -> c_int,
    pub abort_reason: unsafe extern "C" fn(*mut CAbort) -> c_int,
    pub stats: unsafe extern "C" fn(*mut CStats) -> c_int,
    pub abort_if: unsafe extern "C" fn(*const c_int) -> c_int,
    pub share: unsafe extern "C" fn() -> c_int,
    pub join: unsafe extern "C" fn(c_int) -> c_int,
    pub prepare: unsafe extern "C" fn() -> c_int,
    pub finish: unsafe extern "C" fn(c_int) -> c_int,
    pub exclude: unsafe extern "C" fn(*const c_char, *const c_char) -> c_long,
    pub version: unsafe extern "C" fn() -> *const c_char,
    pub name: unsafe extern "C" fn(*const c_char) -> c_int,
}

/// The library, loaded when it is first needed; or why it can't be.
pub fn library() -> Result<&'static Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Library, String> {
    let mut tried = Vec::new();
    if let Ok(handle) = open(&PathBuf::from(NAME), RTLD_NOW | RTLD_NOLOAD) {
        return functions(handle);
    }
    for path in candidates(std::env::var_os("TXOS_LIB")) {
        match open(&path, RTLD_NOW) {
            Ok(handle) => return functions(handle),
            Err(why) => tried.push(why),
        }
    }
    Err(format!("{NAME} was not found; TXOS_LIB may name it. Tried: {}", tried.join("; ")))
}

/// Where the library may be, besides in this process.
fn candidates(named: Option<OsString>) -> Vec<PathBuf> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        // Whoever names one wants that one, or an error.
        return vec![named.into()];
    }
    let mut paths: Vec<PathBuf> = ["", "/usr/local/lib/txos", "/usr/lib/txos"]
        .map(|dir| PathBuf::from(dir).join(NAME))
        .into();
    let own = std::env::current_exe().unwrap_or_default();
    paths.extend(own.ancestors().skip(1).take(2).map(|dir| dir.join(NAME)));
    paths
}

fn open(path: &std::path::Path, mode: c_int) -> Result<*mut c_void, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: a zero-terminated name; the library's constructors expect nothing of the program.
    let handle = unsafe { dlopen(name.as_ptr(), mode) };
    if handle.is_null() {
        // SAFETY: null, or words that stay until this thread's next call of these functions.
        let why = unsafe { dlerror() };
        return Err(match why.is_null() {
            true => path.display().to_string(),
            // SAFETY: as above.
            false => unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned(),
        });
    }
    Ok(handle)
}

fn functions(handle: *mut c_void) -> Result<Library, String> {
    // SAFETY: each is the function of txos.h with this name, of which the field has the type.
    unsafe {
        Ok(Library {
            begin: function(handle, c"sys_xbegin")?,
            end: function(handle, c"sys_xend")?,
            abort: function(handle, c"sys_xabort")?,
            pause: function(handle, c"sys_xpause")?,
            resume: function(handle, c"sys_xresume")?,
            strerror: function(handle, c"txos_strerror")?,
            in_transaction: function(handle, c"txos_in_transaction")?,
            abort_reason: function(handle, c"txos_abort_reason")?,
            stats: function(handle, c"txos_stats")?,
            abort_if: function(handle, c"txos_abort_if")?,
            share: function(handle, c"txos_share")?,
            join: function(handle, c"sys_xjoin")?,
            prepare: function(handle, c"txos_prepare")?,
            finish: function(handle, c"txos_finish")?,
            exclude: function(handle, c"txos_exclude")?,
            version: function(handle, c"txos_version")?,
            name: function(handle, c"txos_name")?,
        })
    }
}

/// A function by its name.
///
/// # Safety
/// `F` is its type, a function pointer.
unsafe fn function<F: Copy>(handle: *mut c_void, name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle was opened and is never closed.
    let at = unsafe { dlsym(handle, name.as_ptr()) };
    if at.is_null() {
        return Err(format!(
            "{NAME} lacks {}: it is older than this crate; install both from the same release",
            name.to_string_lossy()
        ));
    }
    // SAFETY: as the caller says; both have the size of a pointer.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_names_a_library_gets_no_other() {
        assert_eq!(candidates(Some("/a/b.so".into())), [PathBuf::from("/a/b.so")]);
        for none in [None, Some(OsString::new())] {
            let places = candidates(none);
            assert_eq!(places[0], PathBuf::from(NAME));
            assert!(places.len() >= 4 && places.iter().all(|path| path.ends_with(NAME)));
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let why = open("/nonexistent/libtxos.so".as_ref(), RTLD_NOW).unwrap_err();
        assert!(why.contains("/nonexistent/libtxos.so"), "{why}");
    }
}
