use super::*;

/// Two pages of memory, the second of which can't be used.
fn one_page(protection: i32) -> u64 {
    // SAFETY: new memory, of which the second page is made unusable.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let both = 2 * PAGE as usize;
        let at = libc::mmap(std::ptr::null_mut(), both, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let second = at.byte_add(PAGE as usize);
        assert_eq!(libc::mprotect(second, PAGE as usize, libc::PROT_NONE), 0);
        at as u64
    }
}

fn writable_page() -> u64 {
    one_page(libc::PROT_READ | libc::PROT_WRITE)
}

fn pointer<T>(at: u64) -> UserPtr<T> {
    // SAFETY: it leads to memory of the test's that nobody refers to, or nowhere.
    unsafe { UserPtr::new(at) }
}

fn slice(at: u64, len: u64) -> UserSlice {
    // SAFETY: it leads to memory of the test's that nobody refers to, or nowhere.
    unsafe { UserSlice::new(at, len) }
}

/// Addresses at which no program has memory.
const NOWHERE: [u64; 6] = [0, 1, 4096, 0x7fff_ffff_f000, 0xffff_8000_0000_0000, u64::MAX];

#[test]
fn what_is_nowhere_is_efault() {
    for at in NOWHERE {
        assert_eq!(pointer::<u64>(at).read(), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(pointer::<u64>(at).write(1), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(pointer::<u8>(at).path(), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(slice(at, 1).read(), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(slice(at, 1).write(b"x"), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(slice(at, 1).is_zero(), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(slice(at, 1).readable().map(Readable::len), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(slice(at, 1).writable().map(Writable::len), Err(Errno::FAULT), "{at:#x}");
        assert_eq!(slice(at, 1).room(), 0, "{at:#x}");
        assert_eq!(pointer::<[u64; 2]>(at).buffers(1).map(|all| all.len()), Err(Errno::FAULT));
    }
}

#[test]
fn nothing_is_anywhere() {
    for at in NOWHERE {
        assert_eq!(slice(at, 0).readable().map(Readable::len), Ok(0), "{at:#x}");
        assert_eq!(slice(at, 0).writable().map(Writable::len), Ok(0), "{at:#x}");
        assert_eq!(slice(at, 0).read(), Ok(Vec::new()), "{at:#x}");
        assert_eq!(slice(at, 0).write(b""), Ok(()), "{at:#x}");
    }
}

#[test]
fn a_value_is_copied_whole_or_not_at_all() {
    let end = writable_page() + PAGE;
    assert_eq!(pointer(end - 8).write(0x0102_0304_0506_0708_u64), Ok(()));
    assert_eq!(pointer::<u64>(end - 8).read(), Ok(0x0102_0304_0506_0708));
    // Not aligned.
    assert_eq!(pointer::<u32>(end - 7).read(), Ok(0x0405_0607));
    for at in end - 7..end {
        assert_eq!(pointer::<u64>(at).read(), Err(Errno::FAULT));
        assert_eq!(pointer::<u64>(at).write(u64::MAX), Err(Errno::FAULT));
    }
    assert_eq!(pointer::<u64>(end - 8).read(), Ok(0x0102_0304_0506_0708));
}

#[test]
fn what_can_only_be_read_is_not_written() {
    let at = one_page(libc::PROT_READ);
    assert_eq!(pointer::<u32>(at).read(), Ok(0));
    assert_eq!(pointer::<u32>(at).write(1), Err(Errno::FAULT));
    assert_eq!(slice(at, 9).write(b"x"), Err(Errno::FAULT));
    assert_eq!(slice(at, 9).writable().map(Writable::len), Err(Errno::FAULT));
    assert_eq!(slice(at, 9).is_zero(), Ok(true));
}

#[test]
fn a_buffer_that_ends_early_is_used_as_far_as_it_goes() {
    let at = writable_page();
    let end = at + PAGE;
    let half = slice(end - 3, 8);
    assert_eq!(half.readable().map(Readable::len), Ok(3));
    assert_eq!(half.writable().map(Writable::len), Ok(3));
    assert_eq!(half.room(), 3);
    assert_eq!(half.read(), Err(Errno::FAULT));
    assert_eq!(half.write(b"abc"), Ok(()));
    assert_eq!(half.write(b"abcd"), Err(Errno::FAULT));
    assert_eq!(half.readable().map(Readable::to_vec), Ok(b"abc".to_vec()));
    assert_eq!(half.is_zero(), Err(Errno::FAULT));
    assert_eq!(half.after(1).first(2).read(), Ok(b"bc".to_vec()));
    assert!(half.after(9).is_empty());
    // No more than the program gave.
    assert_eq!(slice(at, 2).write(b"abc"), Err(Errno::FAULT));
    assert_eq!(pointer::<u32>(at).read(), Ok(0));
}

#[test]
fn pieces_are_copied_in_and_out() {
    let at = writable_page();
    let whole = slice(at, 100);
    let out = whole.writable().unwrap();
    out.write(10, b"0123456789");
    out.first(12).clear();
    let bytes = whole.readable().unwrap();
    assert_eq!(bytes.array::<10>(10), *b"\0\x0023456789");
    let mut some = [0; 4];
    bytes.copy(12, &mut some);
    assert_eq!(some, *b"2345");
    assert_eq!(whole.is_zero(), Ok(false));
    assert_eq!(whole.first(12).is_zero(), Ok(true));
    assert_eq!(whole.first(13).is_zero(), Ok(false));
}

#[test]
#[should_panic(expected = "from.checked_add")]
fn no_more_is_copied_in_than_there_is() {
    let bytes = slice(writable_page(), 8).readable().unwrap();
    bytes.copy(5, &mut [0; 4]);
}

#[test]
#[should_panic(expected = "at.checked_add")]
fn no_more_is_copied_out_than_there_is() {
    let out = slice(writable_page(), 8).writable().unwrap();
    out.write(usize::MAX, b"ab");
}

#[test]
fn a_text_ends_with_its_zero() {
    let at = writable_page();
    let end = at + PAGE;
    assert_eq!(slice(end - 5, 5).write(b"/tmp\0"), Ok(()));
    assert_eq!(pointer::<u8>(end - 5).path(), Ok(b"/tmp".to_vec()));
    assert_eq!(pointer::<u8>(end - 1).path(), Ok(Vec::new()));
    assert_eq!(pointer::<u8>(end - 5).text(4, Errno::RANGE), Err(Errno::RANGE));
    assert_eq!(pointer::<u8>(end - 5).text(5, Errno::RANGE), Ok(b"/tmp".to_vec()));
    // SAFETY: it is there.
    assert_eq!(unsafe { pointer::<u8>(end - 5).known_path() }, Ok(b"/tmp".to_vec()));
    // One that does not end before the memory does.
    assert_eq!(slice(end - 1, 1).write(b"x"), Ok(()));
    assert_eq!(pointer::<u8>(end - 5).path(), Err(Errno::FAULT));
    let long = [b'x'; PAGE as usize];
    assert_eq!(slice(at, PAGE).write(&long), Ok(()));
    assert_eq!(pointer::<u8>(at).path(), Err(Errno::NAMETOOLONG));
    assert_eq!(pointer::<u8>(at + 1).path(), Err(Errno::FAULT));
}

#[test]
fn lengths_that_overflow_are_seen() {
    let at = writable_page();
    for len in [u64::MAX, u64::MAX - at, u64::MAX - at + 1, 1 << 63] {
        assert!(!slice(at, len).is_possible());
        assert_eq!(slice(at, len).read(), Err(Errno::FAULT));
        assert_eq!(slice(at, len).room(), PAGE);
    }
    assert!(slice(at, PAGE * 2).is_possible());
    assert!(slice(reach::END - 1, 1).is_possible());
    assert!(!slice(reach::END, 1).is_possible());
    // It goes around, and leads nowhere.
    assert_eq!(pointer::<u64>(u64::MAX).item(1).address(), 7);
    assert_eq!(slice(u64::MAX, 5).after(3).address(), 2);
}

#[test]
fn buffers_of_a_vector_call_hold_no_more_than_one_call_moves() {
    let at = writable_page();
    let vector = |words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(slice(at, PAGE).write(&bytes), Ok(()));
        pointer::<[u64; 2]>(at)
    };
    let lengths = |all: Vec<UserSlice>| all.iter().map(|one| one.len()).collect::<Vec<u64>>();
    let all = vector(&[1, 2, 3, MOVED_MAX, 5, 6]).buffers(3).map(lengths);
    assert_eq!(all, Ok(vec![2, MOVED_MAX - 2, 0]));
    let negative = vector(&[1, 2, 3, 1 << 63]).buffers(2).map(lengths);
    assert_eq!(negative, Err(Errno::INVAL));
    assert_eq!(pointer::<[u64; 2]>(at).buffers(1025).map(lengths), Err(Errno::INVAL));
    assert_eq!(pointer::<[u64; 2]>(at).buffers(0).map(lengths), Ok(Vec::new()));
    let early = pointer::<[u64; 2]>(at + PAGE - 24);
    assert_eq!(early.buffers(2).map(lengths), Err(Errno::FAULT));
    let (buffer, word) = vector(&[7, 5 << 32 | 3]).buffer(|word| word & 0xff).unwrap();
    assert_eq!((buffer.address(), buffer.len(), word), (7, 3, 5 << 32 | 3));
}
