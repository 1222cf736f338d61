//! Which calls are the transaction's, the thread's, the process's. The one place that decides.

/// What a system call is to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The transaction's: it knows what the call means in it.
    Transactional,
    /// Touches nothing that a transaction isolates: goes to the kernel.
    Harmless,
    /// A mapping: of a file the transaction's, else harmless.
    Map,
    /// The signal mask.
    Mask,
    /// A signal's disposition.
    Action,
    /// The alternate signal stack.
    AlternateStack,
    /// Return from a handler of the program's.
    SignalReturn,
    /// Waits for a signal, with another mask.
    Suspend,
    /// The thread ends.
    Exit,
    /// The process ends.
    ExitGroup,
    /// A new process or thread: `fork`.
    Fork,
    /// `vfork`.
    Vfork,
    /// `clone`.
    Clone,
    /// `clone3`.
    Clone3,
    /// Another program.
    Exec,
    /// `prctl`: harmless, but dispatch is ours.
    Prctl,
}

const SIZE: usize = 512;

/// Calls that touch nothing a transaction isolates: memory without a file, time, waiting, and what
/// a process is told about itself.
const HARMLESS: &[i64] = &[
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_arch_prctl,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_alarm,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getpgrp,
    libc::SYS_getsid,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_restart_syscall,
];

const OTHERS: &[(i64, Class)] = &[
    (libc::SYS_mmap, Class::Map),
    (libc::SYS_rt_sigprocmask, Class::Mask),
    (libc::SYS_rt_sigaction, Class::Action),
    (libc::SYS_sigaltstack, Class::AlternateStack),
    (libc::SYS_rt_sigreturn, Class::SignalReturn),
    (libc::SYS_rt_sigsuspend, Class::Suspend),
    (libc::SYS_pause, Class::Suspend),
    (libc::SYS_exit, Class::Exit),
    (libc::SYS_exit_group, Class::ExitGroup),
    (libc::SYS_fork, Class::Fork),
    (libc::SYS_vfork, Class::Vfork),
    (libc::SYS_clone, Class::Clone),
    (libc::SYS_clone3, Class::Clone3),
    (libc::SYS_execve, Class::Exec),
    (libc::SYS_execveat, Class::Exec),
    (libc::SYS_prctl, Class::Prctl),
];

static TABLE: [Class; SIZE] = table();

const fn table() -> [Class; SIZE] {
    let mut table = [Class::Transactional; SIZE];
    let mut i = 0;
    while i < HARMLESS.len() {
        table[HARMLESS[i] as usize] = Class::Harmless;
        i += 1;
    }
    i = 0;
    while i < OTHERS.len() {
        table[OTHERS[i].0 as usize] = OTHERS[i].1;
        i += 1;
    }
    table
}

/// What this call is.
#[inline]
pub fn classify(number: i64, args: &[u64; 6]) -> Class {
    let class = usize::try_from(number).ok().and_then(|n| TABLE.get(n));
    match class.copied().unwrap_or(Class::Transactional) {
        Class::Map if args[3] as i32 & libc::MAP_ANONYMOUS != 0 => Class::Harmless,
        Class::Map => Class::Transactional,
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_transactions() {
        let none = [0; 6];
        for number in [libc::SYS_open, libc::SYS_write, libc::SYS_kill, libc::SYS_setuid, -1, 9999]
        {
            assert_eq!(classify(number, &none), Class::Transactional, "{number}");
        }
        assert_eq!(classify(libc::SYS_futex, &none), Class::Harmless);
        assert_eq!(classify(libc::SYS_execve, &none), Class::Exec);
    }

    #[test]
    fn a_mapping_is_the_transactions_if_it_is_of_a_file() {
        let args = |flags: i32| [0, 4096, 3, flags as u64, 3, 0];
        assert_eq!(classify(libc::SYS_mmap, &args(libc::MAP_PRIVATE)), Class::Transactional);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        assert_eq!(classify(libc::SYS_mmap, &args(anonymous)), Class::Harmless);
    }
}
