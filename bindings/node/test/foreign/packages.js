// Packages of others, in a transaction that aborts, in one that commits, and without: the same.
const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
require('graceful-fs').gracefulify(fs);
const path = require('node:path');
const extra = require('fs-extra');
const tar = require('tar');
const { sync: writeAtomically } = require('write-file-atomic');
const { rimrafSync } = require('rimraf');
const txos = require('txos');

const work = (top) => {
  const at = (name) => path.join(top, name);
  extra.outputJsonSync(at('a/b/c.json'), { port: 8080 }, { spaces: 2 });
  extra.copySync(at('a'), at('copy'), { preserveTimestamps: true });
  extra.moveSync(at('copy/b'), at('moved'));
  extra.ensureLinkSync(at('moved/c.json'), at('links/hard'));
  extra.ensureSymlinkSync(at('moved'), at('links/soft'));
  extra.emptyDirSync(at('copy'));
  writeAtomically(at('atomic'), 'one', { mode: 0o600 });
  writeAtomically(at('atomic'), 'two');
  tar.create({ sync: true, file: at('all.tgz'), gzip: true, cwd: top, portable: true, mtime: new Date(0) }, ['a', 'moved']);
  extra.mkdirpSync(at('out'));
  tar.extract({ sync: true, file: at('all.tgz'), cwd: at('out') });
  rimrafSync(at('links/soft'));
  rimrafSync(at('a'));
};
const show = (top) => execFileSync('sh', ['-c', "find . -printf '%p %y %m %n\\n' | sort; find . -type f ! -name all.tgz -exec cksum {} + | sort"], { cwd: top, encoding: 'utf8' });
for (const name of ['plain', 'inside']) fs.mkdirSync(name);
const [plain, inside] = ['plain', 'inside'].map((name) => path.resolve(name));
work(plain);
assert.throws(() => txos.transaction(() => { work(inside); txos.abort(); }, { durable: false }), txos.AbortedError);
assert.deepEqual(fs.readdirSync(inside), []);
txos.transaction(() => work(inside), { durable: false });
assert.equal(show(inside), show(plain));
assert.throws(() => txos.transaction(() => extra.outputFile(path.join(inside, 'x'), '')), txos.AsynchronousError);
console.log(show(plain).split('\n').length);
