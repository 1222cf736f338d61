'use strict';

const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { promisify } = require('node:util');
const { afterEach, beforeEach, test } = require('node:test');
const { Worker } = require('node:worker_threads');
const zlib = require('node:zlib');
// Taken before the package is there to replace it.
const { readFile: earlier } = fs;

const txos = require('txos');

let dir;
let file;

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(process.env.TXOS_TEST_DIR ?? os.tmpdir(), 'txos-test-'));
  file = path.join(dir, 'file');
});
afterEach(() => {
  assert.equal(txos.inTransaction(), false);
  fs.rmSync(dir, { recursive: true });
});

const outsider = (script) => execFileSync('sh', ['-c', script], { cwd: dir, encoding: 'utf8' });
const write = (text) => fs.writeFileSync(file, text);
const read = () => fs.readFileSync(file, 'utf8');
const names = () => fs.readdirSync(dir).join(' ');

test('a function is published when it returns', () => {
  const result = txos.transaction(() => {
    assert.equal(txos.inTransaction(), true);
    write('new\n');
    fs.mkdirSync(path.join(dir, 'other'));
    assert.equal(names(), 'file other');
    assert.equal(txos.pause(() => outsider('ls')), '');
    return 7;
  });
  assert.equal(result, 7);
  assert.equal(outsider('cat file; ls'), 'new\nfile\nother\n');
  txos.transaction(() => write('not durable'), { durable: false });
  assert.equal(read(), 'not durable');
});

test('an exception aborts and goes on', () => {
  const bad = new Error('no good');
  assert.throws(() => txos.transaction(() => { write('new'); process.chdir(dir); throw bad; }), (error) => error === bad);
  assert.equal(names(), '');
  assert.notEqual(process.cwd(), dir);
  assert.throws(() => txos.transaction(() => { write('new'); txos.abort('on purpose'); }),
    { name: 'AbortedError', message: 'on purpose' });
  assert.throws(() => txos.transaction(() => { write('new'); throw undefined; }), (error) => error === undefined);
  assert.equal(names(), '');
});

test('an inner transaction is part of the outer one', () => {
  txos.transaction(() => {
    txos.transaction(() => write('new'));
    assert.equal(txos.pause(names), '');
  });
  assert.equal(read(), 'new');
  assert.throws(() => txos.transaction(() => {
    write('newer');
    try { txos.transaction(() => { throw new Error('no good'); }); } catch { /* dropped */ }
  }), txos.AbortedError);
  assert.equal(read(), 'new');
});

test('what a pause does stays', () => {
  assert.throws(() => txos.transaction(() => {
    write('new');
    txos.pause(() => txos.transaction(() => fs.writeFileSync(path.join(dir, 'log'), 'tried')));
    assert.equal(read(), 'new');
    throw new Error('no good');
  }), /no good/);
  assert.equal(names(), 'log');
  assert.throws(() => txos.pause(() => {}), txos.NotInTransactionError);
  assert.throws(() => txos.abort(), txos.NotInTransactionError);
});

function lose() {
  const text = read();
  txos.pause(() => outsider('echo outsider >>file'));
  fs.writeFileSync(path.join(dir, 'copy'), text);
}

test('a change by somebody else is a conflict', () => {
  write('old\n');
  assert.throws(() => txos.transaction(lose, { retries: 0 }),
    (error) => error instanceof txos.ConflictError && error.path === file && error.message.includes(file)
      && error.code === 'ERR_TXOS_CONFLICT');
  assert.equal(outsider('cat file; ls'), 'old\noutsider\nfile\n');
  // It takes the place of what the function made of it.
  assert.throws(() => txos.transaction(() => {
    fs.statSync(file);
    txos.pause(() => outsider('echo outsider >>file'));
    assert.throws(read, { code: 'ECANCELED' });
    throw new Error('a consequence');
  }, { retries: 0 }), (error) => error instanceof txos.ConflictError && error.cause.message === 'a consequence');
});

test('functions are called again after a conflict', () => {
  write('old\n');
  let tries = 0;
  assert.equal(txos.transaction(() => { if (++tries < 3) lose(); return tries; }), 3);
  tries = 0;
  assert.throws(() => txos.transaction(() => { tries++; lose(); }, { retries: 2 }), txos.ConflictError);
  assert.equal(tries, 3);
  tries = 0;
  const own = new txos.ConflictError('not of this transaction');
  assert.throws(() => txos.transaction(() => { tries++; throw own; }), (error) => error === own);
  assert.equal(tries, 1);
});

test('nonblock does not wait', () => {
  write('old');
  txos.transaction(() => {
    write('mine');
    txos.pause(() => assert.throws(() => txos.transaction(() => write('other'), { nonblock: true, retries: 0 }),
      (error) => error instanceof txos.ConflictError && error.pid === process.pid));
  });
  assert.equal(read(), 'mine');
});

test('strict aborts at what has no part in it', () => {
  const kill = () => { write('new'); process.kill(process.pid, 'SIGCONT'); };
  assert.throws(() => txos.transaction(kill, { strict: true }), (error) => error instanceof txos.UnsupportedError && /signal/.test(error.message));
  assert.equal(names(), '');
  const before = txos.stats();
  txos.transaction(kill);
  const after = txos.stats();
  assert.equal(after.unsupported - before.unsupported, 1);
  assert.equal(after.committed - before.committed, 1);
  assert.ok(after.calls > before.calls);
  assert.match(txos.libraryVersion(), /^\d+\.\d+\.\d+$/);
});

test('sequences', () => {
  txos.transaction(() => write('1'), { sequence: 5000n, resetSequence: true });
  txos.transaction(() => fs.appendFileSync(file, '2'), { sequence: 5001 });
  assert.equal(read(), '12');
});

test('options are checked', () => {
  const never = () => assert.fail('it was called');
  assert.throws(() => txos.transaction(7), TypeError);
  assert.throws(() => txos.transaction(never, { durabel: true }), /durabel/);
  assert.throws(() => txos.transaction(never, { retries: -1 }), RangeError);
  assert.throws(() => txos.transaction(never, { timeout: NaN }), RangeError);
  assert.throws(() => txos.transaction(never, { resetSequence: true }), TypeError);
});

test('asynchronous functions of fs are refused', () => {
  const { open } = fs.promises;
  for (const call of [
    () => fs.writeFile(file, 'new', () => {}),
    () => fs.promises.writeFile(file, 'new'),
    () => open(file, 'w'),
    () => fs.createWriteStream(file),
    () => new fs.WriteStream(file),
    () => fs.exists(file, () => {}),
    () => require('node:fs/promises').mkdir(file),
    () => fs.watchFile(file, () => {}),
  ]) {
    assert.throws(() => txos.transaction(() => { fs.mkdirSync(path.join(dir, 'in')); call(); }),
      (error) => error instanceof txos.AsynchronousError && /fs\.\S+ is asynchronous/.test(error.message));
    // Nor does it commit if the function catches that.
    assert.throws(() => txos.transaction(() => { fs.mkdirSync(path.join(dir, 'in')); try { call(); } catch { /* … */ } }),
      txos.AsynchronousError);
    assert.equal(names(), '');
  }
});

test('outside they are what they were', async () => {
  await fs.promises.writeFile(file, 'new');
  assert.equal(await promisify(fs.readFile)(file, 'utf8'), 'new');
  assert.equal(await promisify(fs.exists)(file), true);
  assert.ok(fs.createReadStream(file).destroy() instanceof fs.ReadStream);
  const { readFile } = await import('node:fs');
  assert.throws(() => txos.transaction(() => readFile(file, () => {})), txos.AsynchronousError);
  // In a pause as well.
  const promise = txos.transaction(() => ({ it: txos.pause(() => fs.promises.readFile(file, 'utf8')) })).it;
  assert.equal(await promise, 'new');
});

test('what comes past that is found at the end', async () => {
  const handle = await fs.promises.open(file, 'w+');
  for (const start of [
    () => new Promise((done) => { earlier(file, done); }),
    () => handle.stat(),
    () => promisify(zlib.gzip)('text'),
  ]) {
    let started;
    assert.throws(() => txos.transaction(() => { fs.mkdirSync(path.join(dir, 'in')); started = start(); }), txos.AsynchronousError);
    await started;
    assert.equal(names(), 'file');
  }
  await handle.close();
});

test('promises are refused', async () => {
  let ran = false;
  assert.throws(() => txos.transaction(async () => { ran = true; }), txos.AsynchronousError);
  assert.throws(() => txos.transaction(function* () { ran = true; }), txos.AsynchronousError);
  assert.equal(ran, false);
  const later = async () => { write('new'); };
  for (const work of [() => later(), () => txos.transaction(() => later())]) {
    assert.throws(() => txos.transaction(work), /returned a promise/);
    assert.equal(names(), '');
  }
  assert.throws(() => txos.transaction(() => { write('new'); try { txos.transaction(() => later()); } catch { /* … */ } }), txos.AsynchronousError);
  assert.equal(names(), '');
});

test('the event loop goes on after a transaction', async () => {
  const order = [];
  const tick = new Promise((done) => {
    txos.transaction(() => {
      setTimeout(() => { order.push(txos.inTransaction()); done(); }, 0);
      process.nextTick(() => order.push('tick'));
      Promise.resolve().then(() => order.push('then'));
      order.push('in');
    });
  });
  await tick;
  assert.deepEqual(order, ['in', 'then', 'tick', false]);
});

test('a timeout ends a function that does not return', () => {
  write('old');
  assert.throws(() => txos.transaction(() => { for (;;) { fs.statSync(file); write('new'); } }, { timeout: 50 }), txos.TimedOutError);
  assert.equal(read(), 'old');
  assert.throws(() => txos.transaction(() => {
    write('mine');
    txos.pause(() => txos.transaction(() => write('other'), { timeout: 50 }));
  }), txos.TimedOutError);
  txos.transaction(() => write('new'), { timeout: 600_000 });
  assert.equal(read(), 'new');
});

test('the whole of fs that is synchronous', () => {
  const work = (top) => {
    const at = (name) => path.join(top, name);
    fs.writeFileSync(at('a'), 'a'.repeat(100_000));
    fs.copyFileSync(at('a'), at('b'));
    fs.mkdirSync(at('d/e/f'), { recursive: true });
    fs.renameSync(at('b'), at('d/e/f/c'));
    fs.symlinkSync('a', at('s'));
    fs.linkSync(at('a'), at('l'));
    fs.chmodSync(at('a'), 0o600);
    fs.truncateSync(at('a'), 7);
    fs.utimesSync(at('a'), 1, 2);
    fs.cpSync(at('d'), at('copy'), { recursive: true });
    fs.rmSync(at('copy/e'), { recursive: true });
    const fd = fs.openSync(at('n'), 'a+');
    fs.writeSync(fd, 'text');
    fs.fsyncSync(fd);
    fs.closeSync(fd);
    fs.rmdirSync(fs.mkdtempSync(at('t-')));
    const found = fs.opendirSync(top);
    while (found.readSync() !== null);
    found.closeSync();
    // `path` is a path relative to it.
    return [fs.realpathSync(at('s')) === fs.realpathSync(at('a')), fs.readlinkSync(at('s')), fs.existsSync(at('l')), fs.statSync(at('l')).nlink];
  };
  const show = (top) => outsider(`cd ${top}; find . -printf '%p %y %m %l ' -type f -printf %s -printf '\\n' | sort; stat -c %Y a; cat a n d/e/f/c | cksum`);
  const [plain, inside] = ['plain', 'inside'].map((name) => path.join(dir, name));
  fs.mkdirSync(plain);
  fs.mkdirSync(inside);
  const expected = work(plain);
  assert.deepEqual(txos.transaction(() => work(inside)), expected);
  assert.equal(show(inside), show(plain));
});

test('descriptors', () => {
  const fd = txos.transaction(() => { const made = fs.openSync(file, 'w'); fs.writeSync(made, 'in '); return made; });
  fs.writeSync(fd, 'after');
  fs.closeSync(fd);
  assert.equal(read(), 'in after');
  // One that is left over leads nowhere, and its end closes no other one.
  let left;
  assert.throws(() => txos.transaction(() => { left = fs.openSync(path.join(dir, 'new'), 'w'); throw new Error('no good'); }), /no good/);
  const other = fs.openSync(file, 'w');
  assert.notEqual(other, left);
  assert.throws(() => fs.writeSync(left, 'x'), { code: 'EBADF' });
  fs.closeSync(left);
  fs.writeSync(other, 'whole');
  fs.closeSync(other);
  assert.equal(read(), 'whole');
  assert.equal(names(), 'file');
});

test('programs are outside', () => {
  txos.transaction(() => {
    write('inside');
    assert.equal(outsider('ls; echo new >outside'), '');
  });
  assert.equal(names(), 'file outside');
});

test('workers have transactions of their own, and lose nothing', async () => {
  const long = (process.env.TXOS_TEST_LONG ?? '').split(',').some((mode) => ['bindings', 'all'].includes(mode));
  const each = long ? 2500 : 100;
  write('0');
  const code = `
    const { workerData: { file, each } } = require('node:worker_threads');
    const fs = require('node:fs');
    const txos = require(${JSON.stringify(require.resolve('txos'))});
    for (let n = 0; n < each; n++) {
      txos.transaction(() => {
        const before = Number(fs.readFileSync(file, 'utf8'));
        // Garbage for the collector.
        const garbage = Array.from({ length: 1000 }, (_, i) => ({ i }));
        fs.writeFileSync(file, String(before + garbage[1].i));
      }, { durable: false, retries: Infinity });
    }`;
  const workers = Array.from({ length: 4 }, () => new Worker(code, { eval: true, workerData: { file, each }, resourceLimits: { maxYoungGenerationSizeMb: 1 } }));
  await Promise.all(workers.map((worker) => new Promise((done, fail) => {
    worker.on('error', fail);
    worker.on('exit', (status) => (status === 0 ? done() : fail(new Error(`exit ${status}`))));
  })));
  assert.equal(read(), String(4 * each));
  assert.equal(names(), 'file');
});

test('collection and compilation go on inside', () => {
  const code = `
    const fs = require('node:fs');
    const txos = require(${JSON.stringify(require.resolve('txos'))});
    txos.transaction(() => {
      const hot = (n) => { let sum = 0; for (let i = 0; i < n; i++) sum += i % 7; return sum; };
      for (let i = 0; i < 2000; i++) { hot(1000); JSON.stringify(Array(1000).fill({ i })); if (i % 500 === 0) gc(); }
      new Function('a', 'return a + 1')(1);
      fs.writeFileSync(process.argv[1], 'new');
    }, { strict: true });`;
  const done = spawnSync(process.execPath, ['--expose-gc', '--max-semi-space-size=1', '-e', code, file], { encoding: 'utf8' });
  assert.equal(done.status, 0, done.stderr);
  assert.equal(read(), 'new');
});

// What Node.js, libuv and V8 make when something is first used, and keep. Each in a process of its own would
// take too long; none of these is a part of another.
const firstUses = `
  const assert = require('node:assert/strict');
  const { once } = require('node:events');
  const fs = require('node:fs');
  const txos = require(${JSON.stringify(require.resolve('txos'))});
  const [dir, how] = process.argv.slice(1);
  const uses = {
    crypto: () => require('node:crypto').generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    zlib: () => require('node:zlib').gunzipSync(require('node:zlib').gzipSync('text')),
    module: () => assert.equal(require(dir + '/module.js'), '1'),
    locale: () => assert.match(new Intl.DateTimeFormat('de', { timeZone: 'Asia/Tokyo' }).format(0), /1970/),
    temporary: () => fs.rmdirSync(fs.mkdtempSync(dir + '/temporary')),
    async signal() {
      const come = once(process, 'SIGUSR2');
      process.kill(process.pid, 'SIGUSR2');
      await come;
    },
    run: () => assert.equal(require('node:child_process').execFileSync('echo', ['text']).toString(), 'text\\n'),
    async child() { assert.equal((await once(require('node:child_process').spawn('true'), 'exit'))[0], 0); },
    async worker() {
      const { Worker } = require('node:worker_threads');
      const code = 'require("node:worker_threads").parentPort.postMessage(require("node:fs").existsSync("/"))';
      const worker = new Worker(code, { eval: true });
      const [[seen]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')]);
      assert.equal(seen, true);
    },
    async network() {
      const server = require('node:net').createServer((socket) => socket.end('text')).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const [data] = await once(require('node:net').connect(server.address().port, '127.0.0.1'), 'data');
      assert.equal(data.toString(), 'text');
      server.close();
    },
    async watch() {
      const watcher = fs.watch(dir);
      if (txos.inTransaction()) return watcher.close();
      const seen = once(watcher, 'change');
      fs.writeFileSync(dir + '/watched', '');
      await seen;
      watcher.close();
    },
  };
  const file = dir + '/file';
  const lose = () => {
    fs.readFileSync(file);
    txos.pause(() => { fs.writeFileSync(file + '.new', 'x'); fs.renameSync(file + '.new', file); });
    assert.throws(() => fs.readFileSync(file));
  };
  fs.writeFileSync(file, 'text');
  fs.writeFileSync(dir + '/module.js', 'module.exports = require("node:querystring").parse("a=1").a;');
  const alive = setInterval(() => {}, 1000);
  (async () => {
    for (const use of Object.values(uses)) {
      let begun;
      try {
        txos.transaction(() => {
          if (how === 'lost') lose();
          begun = use();
          begun?.catch?.(() => {});
          txos.abort();
        }, { retries: 0, durable: false });
      } catch (error) {
        if (!(error instanceof (how === 'lost' ? txos.ConflictError : txos.AbortedError))) throw error;
      }
      if (how === 'aborted') await begun;
      await use();
    }
    console.log('used', Object.keys(uses).length);
    process.exit(0);
  })();`;

const useFirst = (how) => {
  const done = spawnSync(process.execPath, ['-e', firstUses, dir, how], { encoding: 'utf8', timeout: 120_000 });
  assert.equal(done.stdout, 'used 11\n', done.stderr);
};

test('first uses in an aborted transaction are not for good', () => useFirst('aborted'));

test('first uses in a lost transaction are not for good', () => useFirst('lost'));

test('a library that is missing is said to be', () => {
  const code = `try { require(${JSON.stringify(require.resolve('txos'))}).transaction(() => {}); } catch (e) { console.log(e.name, e.message); }`;
  const told = (library) => spawnSync(process.execPath, ['-e', code], { encoding: 'utf8', env: { ...process.env, TXOS_LIB: library } }).stdout;
  assert.match(told('/nonexistent/libtxos.so'), /^LibraryError libtxos\.so was not found: .*TXOS_LIB.*\/nonexistent\/libtxos\.so/);
});
