'use strict';

// libtxos.so: where it is. Looked for in this order; the first that is there is taken:
//
// 1. one that the process has loaded already: two in one process would not know of each other
// 2. the file that TXOS_LIB names
// 3. beside the addon: in an installed package
// 4. where the dynamic linker looks
// 5. /usr/local/lib/txos, /usr/lib/txos

const path = require('path');
const { LibraryError, UnsupportedError } = require('./errors.js');

const NAME = 'libtxos.so';
const HERE = path.join(__dirname, '..', 'prebuilt', `${process.platform}-${process.arch}`);

let loaded = null;

function candidates() {
  const named = process.env.TXOS_LIB;
  if (named) return [named];
  return [path.join(HERE, NAME), NAME, `/usr/local/lib/txos/${NAME}`, `/usr/lib/txos/${NAME}`];
}

function load() {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new UnsupportedError('transactions within a program need Linux on x86-64');
  }
  let addon;
  try {
    addon = require(path.join(HERE, 'txos.node'));
  } catch (cause) {
    throw new LibraryError(
      `the addon can't be loaded: ${cause.message}; in a checkout, bindings/node/build.sh makes it`,
      { cause },
    );
  }
  const tried = [];
  for (const [place, already] of [[NAME, true], ...candidates().map((place) => [place, false])]) {
    const why = addon.load(place, already);
    if (why === null) {
      // Made when it is first used, and for good: in a lost transaction it would lead nowhere.
      void process.stdout;
      void process.stderr;
      return addon;
    }
    if (why[0] === 2) {
      throw new LibraryError(`${why[1]}: it is older than this package; install both from the same release`);
    }
    if (!already) tried.push(why[1]);
  }
  throw new LibraryError(
    `${NAME} was not found: install txos, or set TXOS_LIB to the file. Tried: ${tried.join('; ')}`,
  );
}

/** The addon with the library, loaded when it is first needed. */
module.exports = function library() {
  loaded ??= load();
  return loaded;
};
