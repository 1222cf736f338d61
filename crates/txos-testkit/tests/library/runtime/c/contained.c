/* Runs a program as the usual container engines do: a filter of system calls refuses mounts, namespaces, keys,
 * userfaultfd, BPF and performance counters, and nothing gains privileges.
 *
 * With --privileges programs gain what their files say, as those engines leave it (root only), and what is newer than the
 * profiles of some years ago is not there either. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAMESPACES 0x7e020080
#define REFUSE(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
/* The last that those profiles know: set_mempolicy_home_node. */
#define LAST_KNOWN 450

static int install(struct sock_fprog *program)
{
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program);
}

static int keep_privileges(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_io_uring_setup), REFUSE(SYS_kcmp), REFUSE(SYS_pidfd_getfd), REFUSE(SYS_process_vm_readv),
        REFUSE(SYS_process_vm_writev),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_KNOWN, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(&(struct sock_fprog){sizeof code / sizeof *code, code});
}

int main(int argc, char **argv)
{
    int privileges = argc > 1 && !strcmp(argv[1], "--privileges");
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_mount), REFUSE(SYS_umount2), REFUSE(SYS_pivot_root), REFUSE(SYS_unshare), REFUSE(SYS_setns),
        REFUSE(SYS_open_tree), REFUSE(SYS_move_mount), REFUSE(SYS_fsopen), REFUSE(SYS_mount_setattr),
        REFUSE(SYS_keyctl), REFUSE(SYS_add_key), REFUSE(SYS_request_key), REFUSE(SYS_userfaultfd),
        REFUSE(SYS_bpf), REFUSE(SYS_perf_event_open), REFUSE(SYS_open_by_handle_at), REFUSE(SYS_fanotify_init),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    argc -= privileges, argv += privileges;
    if (argc < 2 || (privileges ? keep_privileges() : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) || install(&program)) {
        perror("contained");
        return 126;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
