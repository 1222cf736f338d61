/*
 * A small C compiler for the guest: what pmake runs. It is written in the C that it compiles.
 *
 *   cc SOURCE OBJECT            compiles a source to a relocatable ELF object for RV64
 *   cc -l PROGRAM OBJECT...     links its objects to a static program
 *
 * It knows char (unsigned), long (also called int), void, pointers, arrays of one dimension, functions with up to eight
 * parameters, enumerations, strings, #include "FILE", if, while, for, break, continue, return, casts, and C's operators but the
 * comma and sizeof. There are no structures, no preprocessor, no switch and no goto. A program has one function that it does
 * not define: sys(number, a, b, c, d), a system call.
 *
 * One pass: code is emitted while the source is read. The value of an expression is in a0, operands wait on the stack, s0 is the
 * frame. An expression that has a place is a place in a0 until its value is wanted (`place`).
 */
long sys(long number, long a, long b, long c, long d);

enum { SYS_OPENAT = 56, SYS_CLOSE = 57, SYS_READ = 63, SYS_WRITE = 64, SYS_EXIT = 93 };
enum { SOURCE_MAX = 1048576, TEXT_MAX = 1048576, DATA_MAX = 524288, OUT_MAX = 4194304 };
enum { NAMES_MAX = 8192, NAME_BYTES_MAX = 131072, RELOCATIONS_MAX = 65536, SCOPE_MAX = 1024, DEPTH_MAX = 16 };

/* Tokens; a character that stands for itself is its own. */
enum {
    NUMBER = 256, STRING, NAME, CHAR, LONG, INT, VOID, ENUM, IF, ELSE, WHILE, FOR, RETURN, BREAK, CONTINUE, STATIC, EXTERN, CONST,
    EQUAL, UNEQUAL, AT_MOST, AT_LEAST, LEFT, RIGHT, BOTH, EITHER, MORE, LESS, OP_ASSIGN
};
/* Types: a base, and 4 for each level of pointers. */
enum { T_VOID = 0, T_CHAR = 1, T_LONG = 2, POINTER = 4 };
/* What a name is. */
enum { NOTHING = 0, FUNCTION, DATA, ZEROED, LOCAL, CONSTANT };
/* Registers. */
enum { ZERO = 0, RA = 1, SP = 2, T0 = 5, S0 = 8, A0 = 10, A1 = 11, A2 = 12, A3 = 13, A4 = 14, A7 = 17 };
/* Relocations, as the psABI numbers them. */
enum { R_CALL = 18, R_HI20 = 26, R_LO12_I = 27 };
/* Sections of an object, and the sizes of ELF's structures. */
enum { S_TEXT = 1, S_RELA = 2, S_DATA = 3, S_BSS = 4, S_SYMTAB = 5, S_STRTAB = 6, S_SHSTRTAB = 7, SECTIONS = 8 };
enum { HEADER = 64, SECTION = 64, PROGRAM = 56, SYMBOL = 24, RELOCATION = 24 };
/* Where a program is loaded. */
enum { BASE = 65536 };

static char source[SOURCE_MAX], text[TEXT_MAX], data[DATA_MAX], out[OUT_MAX];
static long source_end, text_size, data_size, bss_size, out_size;

/* Names, each once; found by a hash. */
static char name_bytes[NAME_BYTES_MAX];
static long names, name_bytes_used, name_at[NAMES_MAX], name_next[NAMES_MAX], hash_head[1024];
/* What a name is now: its kind, type, offset or value, whether it is an array, whether it has been defined. */
static long kind[NAMES_MAX], type[NAMES_MAX], value[NAMES_MAX], is_array[NAMES_MAX], defined[NAMES_MAX], elf_symbol[NAMES_MAX];
/* What names were outside of the blocks that are open. */
static long scope_name[SCOPE_MAX], scope_kind[SCOPE_MAX], scope_type[SCOPE_MAX], scope_value[SCOPE_MAX], scope_array[SCOPE_MAX];
static long scope_used;

/* Relocations: where in the text, which, against which name (-1: the data), and how far from it. */
static long rel_at[RELOCATIONS_MAX], rel_kind[RELOCATIONS_MAX], rel_name[RELOCATIONS_MAX], rel_add[RELOCATIONS_MAX];
static long rels;

/* The reader. */
static char *file;
static char *outer_file[DEPTH_MAX];
static long at, line, token, token_value, outer_at[DEPTH_MAX], outer_line[DEPTH_MAX], depth;
/* The expression that was read last. */
static long place, now;
/* The function that is compiled: its frame, and the jumps out of the loop. */
static long frame, loop_next, loop_ends;

static long length(char *s)
{
    long n = 0;
    while (s[n])
        n++;
    return n;
}

static void say(char *s)
{
    sys(SYS_WRITE, 2, (long)s, length(s), 0);
}

static void fail(char *what)
{
    char digits[24];
    long n = 23, l = line;
    say("cc: ");
    if (file) {
        say(file);
        digits[n] = 0;
        while (l || n == 23) {
            n = n - 1;
            digits[n] = '0' + l % 10;
            l = l / 10;
        }
        if (line) {
            say(":");
            say(digits + n);
        }
        say(": ");
    }
    say(what);
    say("\n");
    sys(SYS_EXIT, 1, 0, 0, 0);
}

static void copy(char *to, char *from, long n)
{
    long i;
    for (i = 0; i < n; i++)
        to[i] = from[i];
}

static long same(char *a, char *b, long n)
{
    long i;
    for (i = 0; i < n; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

/* The number of a name of so many bytes. */
static long intern(char *s, long n)
{
    long hash = 5381, i, id;
    for (i = 0; i < n; i++)
        hash = (hash * 33 + s[i]) & 16777215;
    hash = hash & 1023;
    for (id = hash_head[hash]; id; id = name_next[id])
        if (same(name_bytes + name_at[id], s, n) && name_bytes[name_at[id] + n] == 0)
            return id;
    names++;
    if (names >= NAMES_MAX || name_bytes_used + n + 1 > NAME_BYTES_MAX)
        fail("too many names");
    id = names;
    name_at[id] = name_bytes_used;
    copy(name_bytes + name_bytes_used, s, n);
    name_bytes_used += n + 1;
    name_next[id] = hash_head[hash];
    hash_head[hash] = id;
    return id;
}

/* Reads a file to the end of `to`; how many bytes it has. */
static long read_file(char *name, char *to, long room)
{
    long n = 0, got = 1, fd = sys(SYS_OPENAT, 0 - 100, (long)name, 0, 0);
    if (fd < 0) {
        file = name;
        line = 0;
        fail("it can't be opened");
    }
    while (got > 0) {
        got = sys(SYS_READ, fd, (long)(to + n), room - n, 0);
        if (got > 0)
            n += got;
    }
    sys(SYS_CLOSE, fd, 0, 0, 0);
    if (n >= room)
        fail("it is too long");
    to[n] = 0;
    return n;
}

static void write_file(char *name, long mode)
{
    long done = 0, n = 1, fd = sys(SYS_OPENAT, 0 - 100, (long)name, 577, mode);
    while (fd >= 0 && n > 0 && done < out_size) {
        n = sys(SYS_WRITE, fd, (long)(out + done), out_size - done, 0);
        done += n;
    }
    file = name;
    line = 0;
    if (fd < 0 || n <= 0 || sys(SYS_CLOSE, fd, 0, 0, 0) < 0)
        fail("it can't be written");
}

/* ---- The reader ---- */

static long is_letter(long c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static long is_digit(long c)
{
    return c >= '0' && c <= '9';
}

static void open_source(char *name)
{
    file = name;
    at = source_end;
    line = 1;
    source_end += read_file(name, source + source_end, SOURCE_MAX - source_end) + 1;
}

/* #include "FILE", beside the file that includes it. */
static void include(void)
{
    long from, n = 0, directory = 0, i;
    char *path = source + source_end;
    if (!same(source + at, "#include \"", 10))
        fail("the only directive is #include \"FILE\"");
    from = at + 10;
    while (source[from + n] && source[from + n] != '"' && source[from + n] != '\n')
        n++;
    for (i = 0; file[i]; i++)
        if (file[i] == '/')
            directory = i + 1;
    if (depth + 1 >= DEPTH_MAX || source_end + directory + n + 2 > SOURCE_MAX)
        fail("too many files are included");
    copy(path, file, directory);
    copy(path + directory, source + from, n);
    path[directory + n] = 0;
    source_end += directory + n + 1;
    outer_file[depth] = file;
    outer_at[depth] = from + n + 1;
    outer_line[depth] = line;
    depth++;
    open_source(path);
}

static long escaped(void)
{
    long c = source[at];
    at++;
    if (c != '\\')
        return c;
    c = source[at];
    at++;
    if (c == 'n')
        return '\n';
    if (c == 't')
        return '\t';
    if (c == 'r')
        return '\r';
    if (c == '0')
        return 0;
    return c;
}

/* Passes over blanks, comments and directives. */
static void skip(void)
{
    long c = source[at];
    while (c == ' ' || c == '\t' || c == '\n' || c == '#' || (c == '/' && (source[at + 1] == '*' || source[at + 1] == '/')) ||
           (c == 0 && depth)) {
        if (c == '#') {
            include();
        } else if (c == 0) {
            depth = depth - 1;
            file = outer_file[depth];
            at = outer_at[depth];
            line = outer_line[depth];
        } else if (c == '/' && source[at + 1] == '/') {
            while (source[at] && source[at] != '\n')
                at++;
        } else if (c == '/') {
            at += 2;
            while (source[at] && (source[at] != '*' || source[at + 1] != '/')) {
                line += source[at] == '\n';
                at++;
            }
            if (!source[at])
                fail("a comment has no end");
            at += 2;
        } else {
            line += c == '\n';
            at++;
        }
        c = source[at];
    }
}

static void read_number(void)
{
    long digit = 0, base = 10;
    token = NUMBER;
    token_value = 0;
    if (source[at] == '0' && (source[at + 1] == 'x' || source[at + 1] == 'X')) {
        base = 16;
        at += 2;
    }
    while (digit >= 0) {
        digit = source[at];
        if (is_digit(digit))
            digit = digit - '0';
        else if (base == 16 && digit >= 'a' && digit <= 'f')
            digit = digit - 'a' + 10;
        else if (base == 16 && digit >= 'A' && digit <= 'F')
            digit = digit - 'A' + 10;
        else
            digit = 0 - 1;
        if (digit >= 0) {
            token_value = token_value * base + digit;
            at++;
        }
    }
}

/* A string goes to the data; its place there is the token's value. */
static void read_string(void)
{
    token = STRING;
    token_value = data_size;
    while (source[at] == '"') {
        at++;
        while (source[at] != '"') {
            if (source[at] == 0 || source[at] == '\n')
                fail("a string has no end");
            if (data_size + 8 > DATA_MAX)
                fail("too much data");
            data[data_size] = escaped();
            data_size++;
        }
        at++;
        skip();
    }
    data[data_size] = 0;
    data_size++;
}

/* Operators of two characters, and the one of which `=` makes an assignment. */
static void read_operator(void)
{
    long c = source[at], d = source[at + 1];
    at++;
    token = c;
    if (c == d && (c == '<' || c == '>' || c == '&' || c == '|' || c == '=' || c == '+' || c == '-')) {
        at++;
        if (c == '<')
            token = LEFT;
        else if (c == '>')
            token = RIGHT;
        else if (c == '&')
            token = BOTH;
        else if (c == '|')
            token = EITHER;
        else if (c == '=')
            token = EQUAL;
        else if (c == '+')
            token = MORE;
        else
            token = LESS;
        if ((c == '<' || c == '>') && source[at] == '=') {
            at++;
            token_value = token;
            token = OP_ASSIGN;
        }
    } else if (d == '=') {
        if (c == '!' || c == '<' || c == '>') {
            at++;
            token = c == '!' ? UNEQUAL : c == '<' ? AT_MOST : AT_LEAST;
        } else if (c == '+' || c == '-' || c == '*' || c == '/' || c == '%' || c == '&' || c == '|' || c == '^') {
            at++;
            token_value = c;
            token = OP_ASSIGN;
        }
    }
}

static void next(void)
{
    long from, c;
    skip();
    c = source[at];
    if (is_letter(c)) {
        from = at;
        while (is_letter(source[at]) || is_digit(source[at]))
            at++;
        token_value = intern(source + from, at - from);
        /* Keywords were the first names. */
        token = token_value <= CONST - CHAR + 1 ? CHAR + token_value - 1 : NAME;
    } else if (is_digit(c)) {
        read_number();
    } else if (c == '"') {
        read_string();
    } else if (c == '\'') {
        at++;
        token = NUMBER;
        token_value = escaped();
        if (source[at] != '\'')
            fail("a character has no end");
        at++;
    } else {
        read_operator();
    }
}

static void expect(long what)
{
    char message[16];
    if (token != what) {
        copy(message, "expected 'x'", 13);
        message[10] = what;
        fail(message);
    }
    next();
}

/* ---- Instructions ---- */

static void set_word(long where, long word)
{
    text[where] = word;
    text[where + 1] = word >> 8;
    text[where + 2] = word >> 16;
    text[where + 3] = word >> 24;
}

static long get_word(long where)
{
    return text[where] | text[where + 1] << 8 | text[where + 2] << 16 | text[where + 3] << 24;
}

static void emit(long word)
{
    if (text_size + 4 > TEXT_MAX)
        fail("too much code");
    set_word(text_size, word);
    text_size += 4;
}

static void op_imm(long op, long f3, long rd, long rs, long imm)
{
    emit((imm & 4095) << 20 | rs << 15 | f3 << 12 | rd << 7 | op);
}

static void op_reg(long f7, long f3, long rd, long rs1, long rs2)
{
    emit(f7 << 25 | rs2 << 20 | rs1 << 15 | f3 << 12 | rd << 7 | 51);
}

static void addi(long rd, long rs, long imm)
{
    op_imm(19, 0, rd, rs, imm);
}

static void load(long rd, long rs, long offset)
{
    op_imm(3, 3, rd, rs, offset);
}

static void store(long f3, long value_in, long rs, long offset)
{
    emit((offset >> 5 & 127) << 25 | value_in << 20 | rs << 15 | f3 << 12 | (offset & 31) << 7 | 35);
}

static void push(void)
{
    addi(SP, SP, 0 - 16);
    store(3, A0, SP, 0);
}

static void pop(long rd)
{
    load(rd, SP, 0);
    addi(SP, SP, 16);
}

/* Sets a register to a number: twelve bits at a time, from the top. */
static void constant_to(long rd, long n)
{
    long low = (n & 4095) - ((n & 2048) << 1);
    if (low == n) {
        addi(rd, ZERO, n);
    } else if (n >= 0 - 2147483648 && n < 2147481600) {
        emit(((n - low) >> 12 & 1048575) << 12 | rd << 7 | 55);
        if (low)
            op_imm(27, 0, rd, rd, low);
    } else {
        constant_to(rd, (n - low) >> 12);
        op_imm(19, 1, rd, rd, 12);
        if (low)
            addi(rd, rd, low);
    }
}

static void relocate(long what, long name, long add)
{
    if (rels >= RELOCATIONS_MAX)
        fail("too many relocations");
    rel_at[rels] = text_size;
    rel_kind[rels] = what;
    rel_name[rels] = name;
    rel_add[rels] = add;
    rels++;
}

/* The address of a name, or of a place in the data. */
static void address_of(long name, long add)
{
    relocate(R_HI20, name, add);
    emit(A0 << 7 | 55);
    relocate(R_LO12_I, name, add);
    addi(A0, A0, 0);
}

/* A jump whose end is not known. Those that lead to one place are chained by what is in their words. */
static long jump_chained(long chain)
{
    emit(chain);
    return text_size - 4;
}

static void jump_at(long where, long to)
{
    long d = to - where;
    if (d < 0 - 1048576 || d >= 1048576)
        fail("a jump is too long");
    set_word(where, (d >> 20 & 1) << 31 | (d >> 1 & 1023) << 21 | (d >> 11 & 1) << 20 | (d >> 12 & 255) << 12 | 111);
}

static void chain_ends(long chain)
{
    long before;
    while (chain) {
        before = get_word(chain);
        jump_at(chain, text_size);
        chain = before;
    }
}

static void jump_back(long to)
{
    emit(0);
    jump_at(text_size - 4, to);
}

/* A jump that is taken if a0 is 0 (or, with `if_set`, is not); its place. Branches reach only 4 KiB, so one leads around a jump. */
static long jump_if(long if_set)
{
    emit((if_set ? 0 : 1) << 12 | A0 << 15 | 8 << 7 | 99);
    return jump_chained(0);
}

/* ---- Expressions ---- */

static void assignment(void);

static long bytes_of(long t)
{
    return t == T_CHAR ? 1 : 8;
}

static void load_value(long t)
{
    op_imm(3, t == T_CHAR ? 4 : 3, A0, A0, 0);
}

/* The value of the expression, if it is a place so far. */
static void want_value(void)
{
    if (place)
        load_value(now);
    place = 0;
}

static void store_value(long t)
{
    if (t == T_CHAR)
        op_imm(19, 7, A0, A0, 255);
    store(t == T_CHAR ? 0 : 3, A0, A1, 0);
}

static void want_place(void)
{
    if (!place)
        fail("this is no place to which something can be assigned");
}

static long step_of(long t)
{
    return t >= POINTER ? bytes_of(t - POINTER) : 1;
}

/* a0 = a1 op a0, of these types. */
static void operate(long op, long left, long right)
{
    now = left;
    if ((op == '+' || op == '-') && step_of(left) == 8 && right < POINTER)
        op_imm(19, 1, A0, A0, 3);
    if (op == '+' && step_of(right) == 8 && left < POINTER)
        op_imm(19, 1, A1, A1, 3);
    if (op == '+') {
        op_reg(0, 0, A0, A1, A0);
        if (right >= POINTER)
            now = right;
    } else if (op == '-') {
        op_reg(32, 0, A0, A1, A0);
        if (left >= POINTER && right >= POINTER) {
            if (step_of(left) == 8)
                op_imm(19, 5, A0, A0, 1024 + 3);
            now = T_LONG;
        }
    } else if (op == '*') {
        op_reg(1, 0, A0, A1, A0);
    } else if (op == '/') {
        op_reg(1, 4, A0, A1, A0);
    } else if (op == '%') {
        op_reg(1, 6, A0, A1, A0);
    } else if (op == '&') {
        op_reg(0, 7, A0, A1, A0);
    } else if (op == '|') {
        op_reg(0, 6, A0, A1, A0);
    } else if (op == '^') {
        op_reg(0, 4, A0, A1, A0);
    } else if (op == LEFT) {
        op_reg(0, 1, A0, A1, A0);
    } else if (op == RIGHT) {
        op_reg(32, 5, A0, A1, A0);
    } else if (op == '<' || op == AT_LEAST) {
        op_reg(0, 2, A0, A1, A0);
    } else if (op == '>' || op == AT_MOST) {
        op_reg(0, 2, A0, A0, A1);
    } else {
        op_reg(32, 0, A0, A1, A0);
        if (op == EQUAL)
            op_imm(19, 3, A0, A0, 1);
        else
            op_reg(0, 3, A0, ZERO, A0);
    }
    if (op == AT_LEAST || op == AT_MOST)
        op_imm(19, 4, A0, A0, 1);
    if (now < POINTER || (op != '+' && op != '-'))
        now = T_LONG;
}

static void call(long name)
{
    long n = 0, i;
    next();
    while (token != ')') {
        assignment();
        want_value();
        push();
        n++;
        if (token != ')')
            expect(',');
    }
    next();
    if (n > 8 || n != value[name] >> 32)
        fail("a call has the wrong number of arguments");
    for (i = n - 1; i >= 0; i = i - 1)
        pop(A0 + i);
    relocate(R_CALL, name, 0);
    emit(RA << 7 | 23);
    op_imm(103, 0, RA, RA, 0);
    now = type[name];
}

static void name_read(void)
{
    long name = token_value;
    next();
    place = 0;
    now = type[name];
    if (kind[name] == CONSTANT) {
        constant_to(A0, value[name]);
        now = T_LONG;
    } else if (kind[name] == FUNCTION) {
        if (token != '(')
            fail("a function can only be called");
        call(name);
    } else if (kind[name] == LOCAL || kind[name] == DATA || kind[name] == ZEROED) {
        if (kind[name] != LOCAL) {
            address_of(name, 0);
        } else if (value[name] < 2048) {
            addi(A0, S0, 0 - value[name]);
        } else {
            constant_to(A0, 0 - value[name]);
            op_reg(0, 0, A0, A0, S0);
        }
        if (is_array[name])
            now += POINTER;
        else
            place = 1;
    } else {
        fail("a name has not been declared");
    }
}

static long is_type(long t)
{
    return t == CHAR || t == LONG || t == INT || t == VOID || t == CONST || t == STATIC || t == EXTERN;
}

/* A type without its pointers. */
static long base_type(void)
{
    long t = T_LONG, any = 0;
    while (is_type(token)) {
        if (token == CHAR)
            t = T_CHAR;
        else if (token == VOID)
            t = T_VOID;
        any = 1;
        next();
    }
    if (!any)
        fail("expected a type");
    return t;
}

static long pointers(long t)
{
    while (token == '*') {
        t += POINTER;
        next();
        if (token == CONST)
            next();
    }
    return t;
}

/* ++ and --: after it, the old value is the new one without the step. */
static void change(long op, long after)
{
    long t = now, by;
    want_place();
    by = op == MORE ? step_of(t) : 0 - step_of(t);
    push();
    load_value(t);
    addi(A0, A0, by);
    pop(A1);
    store_value(t);
    if (after)
        addi(A0, A0, 0 - by);
    place = 0;
    now = t;
}

static void unary(void);

static void primary(void)
{
    long t;
    if (token == NUMBER) {
        constant_to(A0, token_value);
        place = 0;
        now = T_LONG;
        next();
    } else if (token == STRING) {
        address_of(0 - 1, token_value);
        place = 0;
        now = T_CHAR + POINTER;
        next();
    } else if (token == NAME) {
        name_read();
    } else {
        expect('(');
        if (is_type(token)) {
            t = pointers(base_type());
            expect(')');
            unary();
            want_value();
            if (t == T_CHAR)
                op_imm(19, 7, A0, A0, 255);
            now = t;
            return;
        }
        assignment();
        expect(')');
    }
    while (token == '[' || token == MORE || token == LESS) {
        if (token == '[') {
            want_value();
            t = now;
            if (t < POINTER)
                fail("what is no pointer has no elements");
            push();
            next();
            assignment();
            want_value();
            expect(']');
            pop(A1);
            operate('+', t, T_LONG);
            now = t - POINTER;
            place = 1;
        } else {
            change(token, 1);
            next();
        }
    }
}

static void unary(void)
{
    long op = token;
    if (op == '!' || op == '-' || op == '~') {
        next();
        unary();
        want_value();
        if (op == '!')
            op_imm(19, 3, A0, A0, 1);
        else if (op == '-')
            op_reg(32, 0, A0, ZERO, A0);
        else
            op_imm(19, 4, A0, A0, 0 - 1);
        now = T_LONG;
    } else if (op == '*') {
        next();
        unary();
        want_value();
        if (now < POINTER)
            fail("what is no pointer leads nowhere");
        now = now - POINTER;
        place = 1;
    } else if (op == '&') {
        next();
        unary();
        want_place();
        place = 0;
        now += POINTER;
    } else if (op == MORE || op == LESS) {
        next();
        unary();
        change(op, 0);
    } else {
        primary();
    }
}

static long precedence(long op)
{
    if (op == EITHER)
        return 1;
    if (op == BOTH)
        return 2;
    if (op == '|')
        return 3;
    if (op == '^')
        return 4;
    if (op == '&')
        return 5;
    if (op == EQUAL || op == UNEQUAL)
        return 6;
    if (op == '<' || op == '>' || op == AT_MOST || op == AT_LEAST)
        return 7;
    if (op == LEFT || op == RIGHT)
        return 8;
    if (op == '+' || op == '-')
        return 9;
    if (op == '*' || op == '/' || op == '%')
        return 10;
    return 0;
}

/* Operators that bind at least as tight as `least`. */
static void binary(long least)
{
    long level, op, left, jump;
    unary();
    level = precedence(token);
    while (level >= least && level) {
        op = token;
        next();
        want_value();
        if (op == BOTH || op == EITHER) {
            jump = jump_if(op == EITHER);
            binary(level + 1);
            want_value();
            jump_at(jump, text_size);
            op_reg(0, 3, A0, ZERO, A0);
            now = T_LONG;
        } else {
            left = now;
            push();
            binary(level + 1);
            want_value();
            pop(A1);
            operate(op, left, now);
        }
        level = precedence(token);
    }
}

static void ternary(void)
{
    long otherwise, end;
    binary(1);
    if (token == '?') {
        want_value();
        next();
        otherwise = jump_if(0);
        assignment();
        want_value();
        expect(':');
        end = jump_chained(0);
        jump_at(otherwise, text_size);
        ternary();
        want_value();
        jump_at(end, text_size);
    }
}

static void assignment(void)
{
    long t, op;
    ternary();
    if (token == '=' || token == OP_ASSIGN) {
        want_place();
        op = token == '=' ? 0 : token_value;
        t = now;
        push();
        if (op) {
            load_value(t);
            push();
        }
        place = 0;
        next();
        assignment();
        want_value();
        if (op) {
            pop(A1);
            operate(op, t, now);
        }
        pop(A1);
        store_value(t);
        now = t;
    }
}

static void expression(void)
{
    assignment();
    want_value();
}

static long constant_value(void)
{
    long minus = token == '-', n = 0;
    if (minus)
        next();
    if (token == NUMBER)
        n = token_value;
    else if (token == NAME && kind[token_value] == CONSTANT)
        n = value[token_value];
    else
        fail("expected a constant");
    next();
    return minus ? 0 - n : n;
}

/* ---- Declarations and statements ---- */

static void enumeration(void)
{
    long n = 0, name;
    next();
    expect('{');
    while (token != '}') {
        name = token_value;
        if (token != NAME)
            fail("expected a name");
        next();
        if (token == '=') {
            next();
            n = constant_value();
        }
        kind[name] = CONSTANT;
        value[name] = n;
        n++;
        if (token != '}')
            expect(',');
    }
    next();
    expect(';');
}

/* A name of this block; what it was before is put back at the end of the block. */
static void declare_local(long name, long t, long size)
{
    if (scope_used >= SCOPE_MAX)
        fail("too many names in a function");
    scope_name[scope_used] = name;
    scope_kind[scope_used] = kind[name];
    scope_type[scope_used] = type[name];
    scope_value[scope_used] = value[name];
    scope_array[scope_used] = is_array[name];
    scope_used++;
    frame += (size + 7) & ~7;
    kind[name] = LOCAL;
    type[name] = t;
    value[name] = frame;
    is_array[name] = 0;
}

static void leave_scope(long until)
{
    long name;
    while (scope_used > until) {
        scope_used = scope_used - 1;
        name = scope_name[scope_used];
        kind[name] = scope_kind[scope_used];
        type[name] = scope_type[scope_used];
        value[name] = scope_value[scope_used];
        is_array[name] = scope_array[scope_used];
    }
}

static void local_declaration(void)
{
    long base = base_type(), t, name, elements;
    while (token != ';') {
        t = pointers(base);
        name = token_value;
        if (token != NAME)
            fail("expected a name");
        next();
        if (token == '[') {
            next();
            elements = constant_value();
            expect(']');
            declare_local(name, t, elements * bytes_of(t));
            is_array[name] = 1;
        } else {
            declare_local(name, t, 8);
        }
        if (token == '=') {
            next();
            constant_to(A0, 0 - value[name]);
            op_reg(0, 0, A0, A0, S0);
            push();
            expression();
            pop(A1);
            store_value(t);
        }
        if (token != ';')
            expect(',');
    }
    next();
}

static void leave_function(void)
{
    addi(SP, S0, 0);
    load(RA, SP, 8);
    load(S0, SP, 0);
    addi(SP, SP, 16);
    op_imm(103, 0, ZERO, RA, 0);
}

static void statement(void);

static void while_statement(void)
{
    long outer_next = loop_next, outer_ends = loop_ends, end;
    next();
    loop_next = text_size;
    loop_ends = 0;
    expect('(');
    expression();
    expect(')');
    end = jump_if(0);
    statement();
    jump_back(loop_next);
    jump_at(end, text_size);
    chain_ends(loop_ends);
    loop_next = outer_next;
    loop_ends = outer_ends;
}

/* The step is read before the body, and is run after it. */
static void for_statement(void)
{
    long outer_next = loop_next, outer_ends = loop_ends, end = 0, body, again;
    next();
    expect('(');
    if (token != ';')
        expression();
    expect(';');
    again = text_size;
    loop_ends = 0;
    if (token != ';') {
        expression();
        end = jump_if(0);
    }
    expect(';');
    body = jump_chained(0);
    loop_next = text_size;
    if (token != ')')
        expression();
    expect(')');
    jump_back(again);
    jump_at(body, text_size);
    statement();
    jump_back(loop_next);
    if (end)
        jump_at(end, text_size);
    chain_ends(loop_ends);
    loop_next = outer_next;
    loop_ends = outer_ends;
}

static void if_statement(void)
{
    long otherwise, end;
    next();
    expect('(');
    expression();
    expect(')');
    otherwise = jump_if(0);
    statement();
    if (token == ELSE) {
        next();
        end = jump_chained(0);
        jump_at(otherwise, text_size);
        statement();
        jump_at(end, text_size);
    } else {
        jump_at(otherwise, text_size);
    }
}

static void statement(void)
{
    long outer = scope_used;
    if (token == '{') {
        next();
        while (token != '}') {
            if (!token)
                fail("a block has no end");
            if (is_type(token))
                local_declaration();
            else
                statement();
        }
        next();
        leave_scope(outer);
    } else if (token == IF) {
        if_statement();
    } else if (token == WHILE) {
        while_statement();
    } else if (token == FOR) {
        for_statement();
    } else if (token == RETURN) {
        next();
        if (token != ';')
            expression();
        leave_function();
        expect(';');
    } else if (token == BREAK || token == CONTINUE) {
        if (!loop_next)
            fail("there is no loop");
        if (token == BREAK)
            loop_ends = jump_chained(loop_ends);
        else
            jump_back(loop_next);
        next();
        expect(';');
    } else if (token == ';') {
        next();
    } else {
        expression();
        expect(';');
    }
}

/* Parameters: declared in the function's scope, counted in the high half of the function's value. */
static long parameters(void)
{
    long n = 0, t;
    expect('(');
    while (token != ')') {
        t = pointers(base_type());
        if (token == NAME) {
            declare_local(token_value, t, 8);
            next();
            n++;
            if (token == '[') {
                next();
                expect(']');
                type[scope_name[scope_used - 1]] = t + POINTER;
            }
        } else if (token != ')' || t != T_VOID) {
            fail("a parameter has no name");
        }
        if (token != ')')
            expect(',');
    }
    next();
    if (n > 8)
        fail("a function has at most eight parameters");
    return n;
}

static void function(long name, long t)
{
    long n, i, size;
    frame = 0;
    scope_used = 0;
    n = parameters();
    kind[name] = FUNCTION;
    type[name] = t;
    if (token == ';') {
        leave_scope(0);
        next();
        if (!defined[name])
            value[name] = n << 32;
        return;
    }
    if (defined[name])
        fail("a function is defined twice");
    defined[name] = 1;
    value[name] = n << 32 | text_size;
    addi(SP, SP, 0 - 16);
    store(3, RA, SP, 8);
    store(3, S0, SP, 0);
    addi(S0, SP, 0);
    /* The frame's size, known at the end: two words. */
    size = text_size;
    emit(T0 << 7 | 55);
    op_imm(27, 0, T0, T0, 0);
    op_reg(0, 0, SP, SP, T0);
    for (i = 0; i < n; i++)
        store(3, A0 + i, S0, 0 - 8 * (i + 1));
    loop_next = 0;
    if (token != '{')
        fail("a function has a body");
    statement();
    leave_scope(0);
    leave_function();
    n = 0 - (((frame + 15) & ~15));
    i = (n & 4095) - ((n & 2048) << 1);
    set_word(size, ((n - i) >> 12 & 1048575) << 12 | T0 << 7 | 55);
    set_word(size + 4, (i & 4095) << 20 | T0 << 15 | T0 << 7 | 27);
}

static void store_data(long where, long n, long bytes)
{
    while (bytes > 0) {
        data[where] = n;
        where++;
        n = n >> 8;
        bytes = bytes - 1;
    }
}

/* Static data with values: a number, a list of numbers, or a string for an array of characters. */
static void initial(long name, long t, long elements)
{
    long n = 0, size = bytes_of(t), i;
    next();
    if (token == STRING) {
        value[name] = token_value;
        next();
        while (data_size & 7)
            data_size++;
        return;
    }
    while (data_size & 7)
        data_size++;
    value[name] = data_size;
    if (token == '{')
        next();
    else
        elements = 1;
    while (token != '}' && n < elements) {
        if (data_size + 8 > DATA_MAX)
            fail("too much data");
        i = constant_value();
        store_data(data_size, i, size);
        data_size += size;
        n++;
        if (is_array[name] && token != '}')
            expect(',');
    }
    data_size += (elements - n) * size;
    if (is_array[name])
        expect('}');
    while (data_size & 7)
        data_size++;
}

static void declaration(void)
{
    long base = base_type(), t, name, elements;
    while (token != ';') {
        t = pointers(base);
        name = token_value;
        if (token != NAME)
            fail("expected a name");
        next();
        if (token == '(') {
            function(name, t);
            return;
        }
        elements = 1;
        is_array[name] = 0;
        if (token == '[') {
            next();
            elements = constant_value();
            expect(']');
            is_array[name] = 1;
        }
        type[name] = t;
        defined[name] = 1;
        if (token == '=') {
            kind[name] = DATA;
            initial(name, t, elements);
        } else {
            kind[name] = ZEROED;
            value[name] = bss_size;
            bss_size += (elements * bytes_of(t) + 7) & ~7;
        }
        if (token != ';')
            expect(',');
    }
    next();
}

/* ---- Objects ---- */

static void put(long n, long bytes)
{
    if (out_size + bytes > OUT_MAX)
        fail("too much is to be written");
    while (bytes > 0) {
        out[out_size] = n;
        out_size++;
        n = n >> 8;
        bytes = bytes - 1;
    }
}

static void put_bytes(char *from, long n)
{
    if (out_size + n > OUT_MAX)
        fail("too much is to be written");
    copy(out + out_size, from, n);
    out_size += n;
}

static void put_header(long what, long entry, long programs, long sections_at)
{
    put(1179403647, 4);
    put(2 | 1 << 8 | 1 << 16, 4);
    put(0, 8);
    put(what | 243 << 16, 4);
    put(1, 4);
    put(entry, 8);
    put(programs ? HEADER : 0, 8);
    put(sections_at, 8);
    put(4, 4);
    put(HEADER | PROGRAM << 16, 4);
    put(programs | SECTION << 16, 4);
    put(sections_at ? SECTIONS | S_SHSTRTAB << 16 : 0, 4);
}

static void put_section(long name, long what, long flags, long offset, long size, long link, long info, long entry)
{
    put(name, 4);
    put(what, 4);
    put(flags, 8);
    put(0, 8);
    put(offset, 8);
    put(size, 8);
    put(link | info << 32, 8);
    put(8, 8);
    put(entry, 8);
}

static void put_symbol(long name, long info, long section, long where)
{
    put(name, 4);
    put(info | section << 16, 4);
    put(where, 8);
    put(0, 8);
}

static long is_symbol(long name)
{
    return kind[name] == FUNCTION || kind[name] == DATA || kind[name] == ZEROED;
}

/* Text, data, relocations, symbols, names, section headers, in this order. */
static void write_object(char *name)
{
    long symbols = 2, strings = 1, i, at_rela, at_data, at_symbols, at_strings, at_sections, k;
    while (text_size & 7)
        emit(19);
    while (data_size & 7)
        data_size++;
    for (i = 1; i <= names; i++)
        if (is_symbol(i)) {
            elf_symbol[i] = symbols;
            symbols++;
            strings += length(name_bytes + name_at[i]) + 1;
        }
    strings = (strings + 7) & ~7;
    at_rela = HEADER + text_size;
    at_data = at_rela + rels * RELOCATION;
    at_symbols = at_data + data_size;
    at_strings = at_symbols + symbols * SYMBOL;
    at_sections = at_strings + strings + 64;
    put_header(1, 0, 0, at_sections);
    put_bytes(text, text_size);
    for (i = 0; i < rels; i++) {
        put(rel_at[i], 8);
        put(rel_kind[i] | (rel_name[i] < 0 ? 1 : elf_symbol[rel_name[i]]) << 32, 8);
        put(rel_add[i], 8);
    }
    put_bytes(data, data_size);
    put_symbol(0, 0, 0, 0);
    put_symbol(0, 3, S_DATA, 0);
    strings = 1;
    for (i = 1; i <= names; i++)
        if (is_symbol(i)) {
            k = kind[i] == FUNCTION ? S_TEXT : kind[i] == DATA ? S_DATA : S_BSS;
            put_symbol(strings, 16, defined[i] ? k : 0, defined[i] ? value[i] & 4294967295 : 0);
            strings += length(name_bytes + name_at[i]) + 1;
        }
    put(0, 1);
    for (i = 1; i <= names; i++)
        if (is_symbol(i))
            put_bytes(name_bytes + name_at[i], length(name_bytes + name_at[i]) + 1);
    while (out_size < at_sections - 64)
        put(0, 1);
    put_bytes(".text", 6);
    put_bytes(".rela.text", 11);
    put_bytes(".data", 6);
    put_bytes(".bss", 5);
    put_bytes(".symtab", 8);
    put_bytes(".strtab", 8);
    put_bytes(".shstrtab", 10);
    while (out_size < at_sections)
        put(0, 1);
    put_section(5, 0, 0, 0, 0, 0, 0, 0);
    put_section(0, 1, 6, HEADER, text_size, 0, 0, 0);
    put_section(6, 4, 64, at_rela, rels * RELOCATION, S_SYMTAB, S_TEXT, RELOCATION);
    put_section(17, 1, 3, at_data, data_size, 0, 0, 0);
    put_section(23, 8, 3, at_symbols, bss_size, 0, 0, 0);
    put_section(28, 2, 0, at_symbols, symbols * SYMBOL, S_STRTAB, 2, SYMBOL);
    put_section(36, 3, 0, at_strings, at_sections - 64 - at_strings, 0, 0, 0);
    put_section(44, 3, 0, at_sections - 64, 64, 0, 0, 0);
    write_file(name, 420);
}

/* ---- The linker ---- */

static long word(long where, long bytes)
{
    long n = 0;
    while (bytes > 0) {
        bytes = bytes - 1;
        n = n << 8 | source[where + bytes];
    }
    return n;
}

/* A field of a section's header: 24 the offset, 32 the size. */
static long section(long number, long field)
{
    return word(word(40, 8) + number * SECTION + field, 8);
}

/* The name of an object's symbol. */
static long symbol_name(long symbol)
{
    char *s = source + section(S_STRTAB, 24) + word(section(S_SYMTAB, 24) + symbol * SYMBOL, 4);
    return intern(s, length(s));
}

/* Takes an object: its sections go behind those of the objects before it. */
static void take_object(char *name)
{
    long size, i, from, symbols, k, id, text_at = text_size, data_at = data_size, bss_at = bss_size;
    file = name;
    line = 0;
    size = read_file(name, source, SOURCE_MAX);
    if (size < HEADER || word(0, 4) != 1179403647 || word(16, 4) != (1 | 243 << 16) || word(60, 2) != SECTIONS ||
        word(40, 8) < 0 || word(40, 8) + SECTIONS * SECTION > size)
        fail("it is no object of this compiler");
    for (i = 1; i < SECTIONS; i++)
        if (i != S_BSS && (section(i, 24) < 0 || section(i, 32) < 0 || section(i, 24) + section(i, 32) > size))
            fail("it is no object of this compiler");
    if (text_size + section(S_TEXT, 32) > TEXT_MAX || data_size + section(S_DATA, 32) > DATA_MAX)
        fail("the program is too large");
    copy(text + text_size, source + section(S_TEXT, 24), section(S_TEXT, 32));
    copy(data + data_size, source + section(S_DATA, 24), section(S_DATA, 32));
    text_size += section(S_TEXT, 32);
    data_size += section(S_DATA, 32);
    bss_size += section(S_BSS, 32);
    symbols = section(S_SYMTAB, 32) / SYMBOL;
    for (i = 2; i < symbols; i++) {
        from = section(S_SYMTAB, 24) + i * SYMBOL;
        k = word(from + 6, 2);
        id = symbol_name(i);
        if (k) {
            if (defined[id])
                fail("a name is defined twice");
            defined[id] = 1;
            kind[id] = k == S_TEXT ? FUNCTION : k == S_DATA ? DATA : ZEROED;
            value[id] = word(from + 8, 8) + (k == S_TEXT ? text_at : k == S_DATA ? data_at : bss_at);
        }
    }
    for (i = 0; i < section(S_RELA, 32) / RELOCATION; i++) {
        from = section(S_RELA, 24) + i * RELOCATION;
        if (rels >= RELOCATIONS_MAX)
            fail("too many relocations");
        k = word(from + 12, 4);
        rel_at[rels] = word(from, 8) + text_at;
        rel_kind[rels] = word(from + 8, 4);
        rel_name[rels] = k == 1 ? 0 - 1 : symbol_name(k);
        rel_add[rels] = word(from + 16, 8) + (k == 1 ? data_at : 0);
        rels++;
    }
}

static void define(char *name)
{
    long id = intern(name, length(name));
    defined[id] = 1;
    kind[id] = FUNCTION;
    value[id] = text_size;
}

/* What a program starts with, and the system call. */
static void begin_program(void)
{
    load(A0, SP, 0);
    addi(A1, SP, 8);
    relocate(R_CALL, intern("main", 4), 0);
    emit(RA << 7 | 23);
    op_imm(103, 0, RA, RA, 0);
    addi(A7, ZERO, SYS_EXIT);
    emit(115);
    define("sys");
    addi(A7, A0, 0);
    addi(A0, A1, 0);
    addi(A1, A2, 0);
    addi(A2, A3, 0);
    addi(A3, A4, 0);
    emit(115);
    op_imm(103, 0, ZERO, RA, 0);
}

static long undefined(long id)
{
    file = name_bytes + name_at[id];
    fail("it is not defined");
    return 0;
}

static void link_program(char *name)
{
    long i, to, low, text_at = BASE + HEADER + PROGRAM, data_at, bss_at, id, w;
    while (data_size & 7)
        data_size++;
    data_at = text_at + text_size;
    bss_at = data_at + data_size;
    for (i = 0; i < rels; i++) {
        id = rel_name[i];
        if (id < 0)
            to = data_at;
        else if (!defined[id])
            to = undefined(id);
        else
            to = value[id] + (kind[id] == FUNCTION ? text_at : kind[id] == DATA ? data_at : bss_at);
        to += rel_add[i];
        if (rel_kind[i] == R_CALL)
            to = to - (text_at + rel_at[i]);
        low = (to & 4095) - ((to & 2048) << 1);
        w = get_word(rel_at[i]);
        if (rel_kind[i] == R_LO12_I) {
            set_word(rel_at[i], (w & 1048575) | (low & 4095) << 20);
        } else {
            set_word(rel_at[i], (w & 4095) | ((to - low) >> 12 & 1048575) << 12);
            if (rel_kind[i] == R_CALL)
                set_word(rel_at[i] + 4, (get_word(rel_at[i] + 4) & 1048575) | (low & 4095) << 20);
        }
    }
    put_header(2, text_at, 1, 0);
    put(1, 4);
    put(7, 4);
    put(0, 8);
    put(BASE, 8);
    put(BASE, 8);
    put(HEADER + PROGRAM + text_size + data_size, 8);
    put(HEADER + PROGRAM + text_size + data_size + bss_size, 8);
    put(4096, 8);
    put_bytes(text, text_size);
    put_bytes(data, data_size);
    write_file(name, 493);
}

long main(long argc, char **argv)
{
    long i;
    if (argc > 3 && same(argv[1], "-l", 3)) {
        begin_program();
        for (i = 3; i < argc; i++)
            take_object(argv[i]);
        link_program(argv[2]);
        return 0;
    }
    if (argc != 3)
        fail("cc SOURCE OBJECT, or cc -l PROGRAM OBJECT...");
    intern("char", 4);
    intern("long", 4);
    intern("int", 3);
    intern("void", 4);
    intern("enum", 4);
    intern("if", 2);
    intern("else", 4);
    intern("while", 5);
    intern("for", 3);
    intern("return", 6);
    intern("break", 5);
    intern("continue", 8);
    intern("static", 6);
    intern("extern", 6);
    intern("const", 5);
    open_source(argv[1]);
    next();
    while (token) {
        if (token == ENUM)
            enumeration();
        else
            declaration();
    }
    write_object(argv[2]);
    return 0;
}
