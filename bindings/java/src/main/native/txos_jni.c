/* The functions of libtxos.so, for Java: each native method is one function of txos.h.
 *
 * libtxos.so is loaded here and not by Java, so that one that the process has already is used, and one
 * that is missing or too old is reported in words.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include <dlfcn.h>
#include <errno.h>
#include <jni.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "txos.h"

static struct {
    int (*begin)(int, ...);
    int (*end)(void);
    void (*abort)(int);
    long (*pause)(void);
    int (*resume)(long);
    int (*in_transaction)(void);
    const char *(*strerror)(void);
    int (*abort_reason)(struct txos_abort *);
    int (*stats)(struct txos_stats *);
    const char *(*version)(void);
    long (*exclude)(const char *, const char *);
    int (*share)(void);
    int (*join)(int);
    int (*abort_if)(const volatile int *);
    int (*name)(const char *);
} lib;

static const struct {
    const char *name;
    void **place;
} FUNCTIONS[] = {
    { "sys_xbegin", (void **)&lib.begin },
    { "sys_xend", (void **)&lib.end },
    { "sys_xabort", (void **)&lib.abort },
    { "sys_xpause", (void **)&lib.pause },
    { "sys_xresume", (void **)&lib.resume },
    { "txos_in_transaction", (void **)&lib.in_transaction },
    { "txos_strerror", (void **)&lib.strerror },
    { "txos_abort_reason", (void **)&lib.abort_reason },
    { "txos_stats", (void **)&lib.stats },
    { "txos_version", (void **)&lib.version },
    { "txos_exclude", (void **)&lib.exclude },
    { "txos_share", (void **)&lib.share },
    { "sys_xjoin", (void **)&lib.join },
    { "txos_abort_if", (void **)&lib.abort_if },
    { "txos_name", (void **)&lib.name },
};

/* A copy of a Java array of bytes as a C string. */
static int string_of(JNIEnv *env, jbyteArray bytes, char *out, size_t room) {
    jsize length = (*env)->GetArrayLength(env, bytes);
    if ((size_t)length >= room)
        return -1;
    (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte *)out);
    out[length] = 0;
    return (*env)->ExceptionCheck(env) ? -1 : 0;
}

static jbyteArray bytes_of(JNIEnv *env, const char *text) {
    jsize length = (jsize)strlen(text);
    jbyteArray bytes = (*env)->NewByteArray(env, length);
    if (bytes != NULL)
        (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte *)text);
    return bytes;
}

/* Loads the library; null if it went well, else why it did not. */
JNIEXPORT jbyteArray JNICALL Java_txos_Native_open(JNIEnv *env, jclass self, jbyteArray path) {
    (void)self;
    char name[4096], words[4500];
    if (string_of(env, path, name, sizeof name) != 0)
        return bytes_of(env, "its path is too long");
    /* Two in one process would not know of each other. */
    void *handle = dlopen("libtxos.so", RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL)
        handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL)
        return bytes_of(env, dlerror());
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        *FUNCTIONS[i].place = dlsym(handle, FUNCTIONS[i].name);
        if (*FUNCTIONS[i].place == NULL) {
            const char *(*version)(void) = (const char *(*)(void))dlsym(handle, "txos_version");
            snprintf(words, sizeof words, "it has no %s: it is of version %s, which is too old",
                     FUNCTIONS[i].name, version != NULL ? version() : "unknown");
            return bytes_of(env, words);
        }
    }
    return NULL;
}

/* 0, or the errno. What it comes after, if not null, is zero-terminated. */
JNIEXPORT jint JNICALL Java_txos_Native_begin(JNIEnv *env, jclass self, jint flags, jlong sequence,
                                              jbyteArray after) {
    (void)self;
    if (after == NULL)
        return lib.begin(flags, (uint64_t)sequence) >= 0 ? 0 : errno;
    jbyte *names = (*env)->GetByteArrayElements(env, after, NULL);
    if (names == NULL)
        return ENOMEM;
    int error = lib.begin(flags, (const char *)names) >= 0 ? 0 : errno;
    (*env)->ReleaseByteArrayElements(env, after, names, JNI_ABORT);
    return error;
}

/* 0, or the errno. The name, if not null, is zero-terminated. */
JNIEXPORT jint JNICALL Java_txos_Native_name(JNIEnv *env, jclass self, jbyteArray name) {
    (void)self;
    if (name == NULL)
        return lib.name(NULL) == 0 ? 0 : errno;
    jbyte *text = (*env)->GetByteArrayElements(env, name, NULL);
    if (text == NULL)
        return ENOMEM;
    int error = lib.name((const char *)text) == 0 ? 0 : errno;
    (*env)->ReleaseByteArrayElements(env, name, text, JNI_ABORT);
    return error;
}

JNIEXPORT jint JNICALL Java_txos_Native_end(JNIEnv *env, jclass self) {
    (void)env, (void)self;
    return lib.end() == 0 ? 0 : errno;
}

JNIEXPORT void JNICALL Java_txos_Native_abort(JNIEnv *env, jclass self) {
    (void)env, (void)self;
    lib.abort(1);
}

/* An id, or the errno as a negative number. */
JNIEXPORT jlong JNICALL Java_txos_Native_pause(JNIEnv *env, jclass self) {
    (void)env, (void)self;
    long id = lib.pause();
    return id >= 0 ? id : -(jlong)errno;
}

JNIEXPORT jint JNICALL Java_txos_Native_resume(JNIEnv *env, jclass self, jlong id) {
    (void)env, (void)self;
    return lib.resume((long)id) == 0 ? 0 : errno;
}

JNIEXPORT jboolean JNICALL Java_txos_Native_inTransaction(JNIEnv *env, jclass self) {
    (void)env, (void)self;
    return lib.in_transaction() != 0;
}

JNIEXPORT jbyteArray JNICALL Java_txos_Native_words(JNIEnv *env, jclass self) {
    (void)self;
    return bytes_of(env, lib.strerror());
}

JNIEXPORT jbyteArray JNICALL Java_txos_Native_version(JNIEnv *env, jclass self) {
    (void)self;
    return bytes_of(env, lib.version());
}

/* Why the last transaction of this thread was aborted: reason, errno and pid in numbers; what, and with
 * text 1 the path. */
JNIEXPORT jbyteArray JNICALL Java_txos_Native_reason(JNIEnv *env, jclass self, jintArray numbers,
                                                     jint text) {
    (void)self;
    struct txos_abort abort;
    abort.size = sizeof abort;
    if (lib.abort_reason(&abort) != 0)
        return NULL;
    jint values[] = { (jint)abort.reason, abort.error, abort.pid };
    (*env)->SetIntArrayRegion(env, numbers, 0, 3, values);
    return bytes_of(env, text == 0 ? abort.what : abort.path);
}

JNIEXPORT jint JNICALL Java_txos_Native_stats(JNIEnv *env, jclass self, jlongArray out) {
    (void)self;
    struct txos_stats stats;
    stats.size = sizeof stats;
    if (lib.stats(&stats) != 0)
        return errno;
    jlong values[] = { (jlong)stats.begun,   (jlong)stats.committed, (jlong)stats.aborted,
                       (jlong)stats.calls,   (jlong)stats.trapped,   (jlong)stats.unsupported,
                       (jlong)stats.short_cuts };
    (*env)->SetLongArrayRegion(env, out, 0, sizeof values / sizeof *values, values);
    return 0;
}

/* How many files, or the errno as a negative number. */
JNIEXPORT jlong JNICALL Java_txos_Native_exclude(JNIEnv *env, jclass self, jbyteArray path,
                                                 jbyteArray suffix) {
    (void)self;
    char name[4096], end[256];
    if (string_of(env, path, name, sizeof name) != 0 || string_of(env, suffix, end, sizeof end) != 0)
        return -ENAMETOOLONG;
    long count = lib.exclude(name, end);
    return count >= 0 ? count : -(jlong)errno;
}

/* A descriptor, or the errno as a negative number. */
JNIEXPORT jint JNICALL Java_txos_Native_share(JNIEnv *env, jclass self) {
    (void)env, (void)self;
    int shown = lib.share();
    return shown >= 0 ? shown : -errno;
}

/* 0, or the errno. */
JNIEXPORT jint JNICALL Java_txos_Native_join(JNIEnv *env, jclass self, jint shown) {
    (void)env, (void)self;
    return lib.join(shown) == 0 ? 0 : errno;
}

JNIEXPORT void JNICALL Java_txos_Native_hide(JNIEnv *env, jclass self, jint shown) {
    (void)env, (void)self;
    close(shown);
}

/* The address of a number that is 0, for the next three; 0: there is no memory. */
JNIEXPORT jlong JNICALL Java_txos_Native_newFlag(JNIEnv *env, jclass self) {
    (void)env, (void)self;
    return (jlong)(intptr_t)calloc(1, sizeof(int));
}

JNIEXPORT void JNICALL Java_txos_Native_setFlag(JNIEnv *env, jclass self, jlong flag) {
    (void)env, (void)self;
    __atomic_store_n((int *)(intptr_t)flag, 1, __ATOMIC_RELAXED);
}

JNIEXPORT void JNICALL Java_txos_Native_freeFlag(JNIEnv *env, jclass self, jlong flag) {
    (void)env, (void)self;
    free((void *)(intptr_t)flag);
}

/* 0, or the errno. */
JNIEXPORT jint JNICALL Java_txos_Native_abortIf(JNIEnv *env, jclass self, jlong flag) {
    (void)env, (void)self;
    return lib.abort_if((const volatile int *)(intptr_t)flag) == 0 ? 0 : errno;
}
