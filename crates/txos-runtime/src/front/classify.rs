//! Which calls are the transaction's, the thread's, the process's.

pub use txos_calls::Class;
use txos_calls::class;

/// What this call is: some classes depend on arguments.
#[inline]
pub fn classify(number: i64, args: &[u64; 6]) -> Class {
    match class(number) {
        Class::Map if args[3] as i32 & libc::MAP_ANONYMOUS != 0 => Class::Harmless,
        Class::Map => Class::Transactional,
        Class::Wait if args[0] as u32 == libc::P_PIDFD => Class::Descriptor,
        Class::Wait => Class::Harmless,
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_transactions() {
        let none = [0; 6];
        for number in [libc::SYS_open, libc::SYS_write, libc::SYS_setxattr] {
            assert_eq!(classify(number, &none), Class::Transactional, "{number}");
        }
        for number in [-1, 470, 9999, libc::SYS_getpid | 0x4000_0000, i64::MAX, i64::MIN] {
            assert_eq!(classify(number, &none), Class::Unknown, "{number}");
        }
        assert_eq!(classify(libc::SYS_futex, &none), Class::Harmless);
        assert_eq!(classify(libc::SYS_execve, &none), Class::Exec);
        assert!(matches!(classify(libc::SYS_kill, &none), Class::Held(_)));
        assert!(matches!(classify(libc::SYS_io_uring_setup, &none), Class::Refused(..)));
    }

    #[test]
    fn a_mapping_is_the_transactions_if_it_is_of_a_file() {
        let args = |flags: i32| [0, 4096, 3, flags as u64, 3, 0];
        assert_eq!(classify(libc::SYS_mmap, &args(libc::MAP_PRIVATE)), Class::Transactional);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        assert_eq!(classify(libc::SYS_mmap, &args(anonymous)), Class::Harmless);
    }

    #[test]
    fn a_child_named_by_a_descriptor_is_looked_up_in_the_transaction() {
        let args = |kind: u32| [u64::from(kind), 3, 0, 0, 0, 0];
        assert_eq!(classify(libc::SYS_waitid, &args(libc::P_PIDFD)), Class::Descriptor);
        assert_eq!(classify(libc::SYS_waitid, &args(libc::P_PID)), Class::Harmless);
    }
}
