'use strict';

const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { promisify } = require('node:util');
const { afterEach, beforeEach, test } = require('node:test');
const { MessageChannel, Worker, receiveMessageOnPort } = require('node:worker_threads');
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
  const outside = () => { write('new'); os.setPriority(process.ppid, os.getPriority(process.ppid)); };
  assert.throws(() => txos.transaction(outside, { strict: true }), (error) => error instanceof txos.UnsupportedError && /priority/.test(error.message));
  assert.equal(names(), '');
  const before = txos.stats();
  txos.transaction(outside);
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
  for (const wrong of [{ name: '' }, { name: 'a\nb' }, { name: 7 }, { after: 'é'.repeat(128) }, { after: ['a', ''] }, { after: 'a', sequence: 1 }]) {
    assert.throws(() => txos.transaction(never, wrong), TypeError);
  }
});

test('a name is of one transaction', () => {
  const never = () => assert.fail('it was called');
  txos.transaction(() => write('1'), { name: 'p' });
  for (const options of [{ after: 'p' }, { after: ['p'], name: 'p' }]) {
    assert.throws(() => txos.transaction(never, options),
      (error) => error instanceof txos.NotProducedError && error.errno === os.constants.errno.ESRCH && error.code === 'ERR_TXOS_NOT_PRODUCED');
  }
  txos.transaction(() => {
    assert.throws(() => txos.transaction(never, { name: 'p' }), txos.FailedError);
    assert.throws(() => txos.transaction(never, { after: 'p' }), txos.FailedError);
    write('2');
  });
  assert.equal(read(), '2');
});

test('a function asks to be called again', () => {
  let calls = 0;
  txos.transaction(() => { write(String(++calls)); if (calls < 3) txos.again(); });
  assert.equal(read(), '3');
  assert.throws(() => txos.transaction(() => txos.again('too early'), { retries: 1 }),
    (error) => error instanceof txos.ConflictError && error.message === 'too early');
  assert.throws(() => txos.again(), txos.NotInTransactionError);
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

// A worker that takes part where it is told to: what to do is JavaScript, which is given `fs`, `txos`, `dir` and the ticket.
const member = async () => {
  const code = `
    const { parentPort, workerData: { dir, done } } = require('node:worker_threads');
    const fs = require('node:fs');
    const txos = require(${JSON.stringify(require.resolve('txos'))});
    parentPort.on('message', ({ ticket, work, port }) => {
      let answer;
      try {
        answer = { gave: txos.takePart(ticket, new Function('fs', 'txos', 'dir', 'ticket', 'require', work).bind(null, fs, txos, dir, ticket, require)) };
      } catch ({ name, message }) {
        answer = { failed: name + ': ' + message };
      }
      port.postMessage(answer);
      Atomics.add(done, 0, 1);
      Atomics.notify(done, 0);
    });`;
  const done = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(code, { eval: true, workerData: { dir, done } });
  await once(worker, 'online');
  let asked = 0;
  // Gives a function that waits for the answer; this thread's event loop stands still.
  const ask = (ticket, work) => {
    const { port1, port2 } = new MessageChannel();
    worker.postMessage({ ticket, work, port: port2 }, [port2]);
    const count = ++asked;
    return () => {
      for (let seen; (seen = Atomics.load(done, 0)) < count; ) Atomics.wait(done, 0, seen);
      return receiveMessageOnPort(port1).message;
    };
  };
  return { worker, ask };
};

test('workers take part in a transaction', async () => {
  const workers = await Promise.all([member(), member()]);
  try {
    let ticket;
    txos.transaction(() => {
      write('begun');
      ticket = txos.share();
      assert.equal(txos.share(), ticket);
      const answers = workers.map(({ ask }, i) => ask(ticket, `
        if (!txos.inTransaction()) throw new Error('outside');
        fs.writeFileSync(dir + '/made${i}', fs.readFileSync(dir + '/file'));
        txos.transaction(() => fs.mkdirSync(dir + '/inner${i}'));
        txos.pause(() => fs.writeFileSync(dir + '/paused${i}', ''));
        return ${i};`));
      assert.deepEqual(answers.map((answer) => answer().gave), [0, 1]);
      assert.equal(names(), 'file inner0 inner1 made0 made1 paused0 paused1');
      assert.equal(txos.pause(() => outsider('ls')), 'paused0\npaused1\n');
    });
    assert.equal(outsider('ls; cat made1'), 'file\ninner0\ninner1\nmade0\nmade1\npaused0\npaused1\nbegun');
    // Its end waits for one that is in it; what comes later is refused.
    const inside = new Int32Array(new SharedArrayBuffer(4));
    let last;
    txos.transaction(() => {
      const shown = { ...txos.share(), inside };
      last = workers[0].ask(shown, `
        Atomics.store(ticket.inside, 0, 1);
        Atomics.notify(ticket.inside, 0);
        fs.writeFileSync(dir + '/last', '');`);
      Atomics.wait(inside, 0, 0);
    });
    assert.deepEqual(last(), { gave: undefined });
    assert.ok(fs.existsSync(path.join(dir, 'last')));
    assert.match(workers[0].ask(ticket, 'throw new Error("it was called")')().failed, /^NotInTransactionError: .* is over/);
  } finally {
    await Promise.all(workers.map(({ worker }) => worker.terminate()));
  }
});

test('a worker that fails aborts', async () => {
  const { worker, ask } = await member();
  try {
    for (const [work, told] of [
      ['fs.writeFileSync(dir + "/file", ""); throw new Error("no good")', /^Error: no good/],
      ['fs.writeFileSync(dir + "/file", ""); return Promise.resolve()', /^AsynchronousError/],
      ['fs.writeFileSync(dir + "/file", ""); fs.promises.readFile(dir)', /^AsynchronousError/],
    ]) {
      let answer;
      assert.throws(() => txos.transaction(() => {
        answer = ask(txos.share(), work)();
        assert.throws(() => write('new'), { code: 'ECANCELED' });
      }), (error) => error instanceof txos.AbortedError && /worker/.test(error.message));
      assert.match(answer.failed, told);
      assert.throws(() => txos.transaction(() => { ask(txos.share(), work)(); write('new'); }), txos.AbortedError);
      assert.throws(() => txos.transaction(() => { ask(txos.share(), work)(); throw new Error('mine'); }), /mine/);
      assert.equal(names(), '');
    }
    assert.throws(() => txos.share(), txos.NotInTransactionError);
    assert.throws(() => txos.takePart({}, () => {}), TypeError);
    txos.transaction(() => assert.throws(() => txos.takePart(txos.share(), () => {}), txos.FailedError));
  } finally {
    await worker.terminate();
  }
});

test('a conflict in a worker is lost by all', async () => {
  const { worker, ask } = await member();
  write('1');
  const answers = [];
  try {
    txos.transaction(() => {
      answers.push(ask(txos.share(), `
        const before = Number(fs.readFileSync(dir + '/file', 'utf8'));
        if (before === 1) require('node:child_process').execFileSync('sh', ['-c', 'echo 10 > file'], { cwd: dir });
        fs.writeFileSync(dir + '/file', String(before + 1));
        return before;`)());
    });
  } finally {
    await worker.terminate();
  }
  assert.match(answers[0].failed, /^ConflictError/);
  assert.deepEqual(answers.slice(1), [{ gave: 10 }]);
  assert.equal(read(), '11');
});

test('a thread or process that ends aborts', async () => {
  const head = `const fs = require('node:fs'); const txos = require(${JSON.stringify(require.resolve('txos'))});`;
  const inside = `${head} txos.transaction(() => { fs.writeFileSync(${JSON.stringify(file)}, 'x'); process.exit(3); });`;
  const paused = inside.replace('process.exit(3)', 'txos.pause(() => process.exit(3))');
  for (const code of [inside, paused]) {
    assert.equal(spawnSync(process.execPath, ['-e', code]).status, 3);
    assert.equal(names(), '');
    assert.deepEqual(await once(new Worker(code, { eval: true }), 'exit'), [3]);
    assert.equal(names(), '');
    // Nothing of it is left that another one would wait for.
    txos.transaction(() => { write('x'); fs.unlinkSync(file); }, { nonblock: true, retries: 0 });
  }
  // One that is stopped from outside, in a loop.
  const begun = new Int32Array(new SharedArrayBuffer(4));
  const loop = `${head} const { workerData } = require('node:worker_threads');
    txos.transaction(() => {
      fs.writeFileSync(${JSON.stringify(file)}, 'x');
      Atomics.store(workerData, 0, 1);
      Atomics.notify(workerData, 0);
      for (;;) ;
    });`;
  const worker = new Worker(loop, { eval: true, workerData: begun });
  while (Atomics.load(begun, 0) === 0) await new Promise((tick) => setImmediate(tick));
  await worker.terminate();
  txos.transaction(() => { write('x'); fs.unlinkSync(file); }, { nonblock: true, retries: 0 });
  assert.equal(names(), '');
  // One that takes part has not done its part.
  const { worker: other, ask } = await member();
  assert.throws(() => txos.transaction(() => {
    ask(txos.share(), 'fs.writeFileSync(dir + "/file", "x"); process.exit(0)');
    for (;;) fs.statSync(dir);
  }), (error) => error.code === 'ECANCELED' || error instanceof txos.AbortedError);
  await other.terminate();
  assert.equal(names(), '');
});

test('files that are left out', () => {
  write('1');
  fs.writeFileSync(path.join(dir, 'kept.js'), '1');
  assert.equal(txos.leaveOut(dir, '.js'), 1);
  const kept = path.join(dir, 'kept.js');
  let fd;
  assert.throws(() => txos.transaction(() => {
    assert.throws(() => txos.leaveOut(dir), txos.FailedError);
    fd = fs.openSync(kept);
    txos.pause(() => outsider('echo 2 >>kept.js'));
    txos.abort();
  }), txos.AbortedError);
  assert.equal(fs.readFileSync(fd, 'utf8'), '12\n');
  fs.closeSync(fd);
  const readAnd = (name) => () => {
    fs.readFileSync(path.join(dir, name));
    txos.pause(() => outsider(`echo 3 >>${name}`));
    write('new');
  };
  txos.transaction(readAnd('kept.js'), { retries: 0 });
  assert.throws(() => txos.transaction(readAnd('file'), { retries: 0 }), txos.ConflictError);
  assert.throws(() => txos.leaveOut(path.join(dir, 'none')), txos.FailedError);
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
