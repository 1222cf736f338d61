'use strict';

// Asynchronous functions of `fs` run on threads of libuv's pool, which are in no transaction: what they do
// would stay after an abort, and would not see the transaction's changes. In a transaction each of them throws
// before it has done anything. (What comes past this is found by the addon, by the requests that the loop has
// got in the meantime; see `end`.)

const fs = require('fs');
const { syncBuiltinESMExports } = require('module');

// Without a synchronous twin.
const OTHERS = ['createReadStream', 'createWriteStream', 'ReadStream', 'WriteStream', 'openAsBlob', 'watchFile'];

/** Has each asynchronous function call `check(name)` first. */
module.exports = function guard(check) {
  const guarded = (of, name, told) => {
    const plain = of[name];
    if (typeof plain !== 'function') return;
    of[name] = new Proxy(plain, {
      apply(target, self, values) {
        check(told);
        return Reflect.apply(target, self, values);
      },
      construct(target, values, made) {
        check(told);
        return Reflect.construct(target, values, made);
      },
    });
  };
  for (const name of Object.keys(fs)) {
    if (typeof fs[`${name}Sync`] === 'function' || OTHERS.includes(name)) guarded(fs, name, `fs.${name}`);
  }
  const { promises } = fs;
  for (const name of Object.keys(promises)) guarded(promises, name, `fs.promises.${name}`);
  syncBuiltinESMExports();
};
