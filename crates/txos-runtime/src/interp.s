# The dynamic linker that the kernel is to run if the library is run as a program.
    .section .interp,"aR",@progbits
    .asciz "/lib64/ld-linux-x86-64.so.2"
    .section .note.GNU-stack,"",@progbits
