// Builds the page into crates/throng-http/console, where the server takes it from. `--watch` goes on building,
// `--check` builds in memory and compares with what stands there, `--tests` bundles the tests for node.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '../crates/throng-http/console');
/** The whole page, uncompressed; the server sends it compressed. */
const BYTES_MAX = 300_000;

const page = {
  absWorkingDir: here,
  entryPoints: { console: 'src/main.tsx' },
  outdir: out,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.svg': 'text' },
  banner: {
    js: '/* Throng. Holds Preact and Preact Signals (MIT, Jason Miller and contributors) and uPlot (MIT, Leon Sorokin). */',
  },
};

/** name → bytes of everything that is served. */
async function build() {
  const { outputFiles } = await esbuild.build({ ...page, write: false });
  const files = new Map(outputFiles.map((file) => [file.path.slice(out.length + 1), Buffer.from(file.contents)]));
  for (const name of ['index.html', 'icons.svg']) {
    files.set(name, readFileSync(join(here, 'src', name)));
  }
  return files;
}

function say(files) {
  let bytes = 0;
  let compressed = 0;
  for (const [name, content] of files) {
    const small = gzipSync(content, { level: 9 }).length;
    bytes += content.length;
    compressed += small;
    console.log(
      `${name.padEnd(14)} ${String(content.length).padStart(8)} bytes, ${String(small).padStart(7)} compressed`,
    );
  }
  console.log(
    `${'together'.padEnd(14)} ${String(bytes).padStart(8)} bytes, ${String(compressed).padStart(7)} compressed`,
  );
  if (bytes > BYTES_MAX) {
    throw new Error(`the page has ${bytes} bytes, more than ${BYTES_MAX}`);
  }
}

function write(files) {
  mkdirSync(out, { recursive: true });
  for (const name of readdirSync(out)) {
    if (!files.has(name)) rmSync(join(out, name));
  }
  // What is as it was keeps its time: whoever builds the program then has nothing to do.
  for (const name of differing(files)) {
    writeFileSync(join(out, name), files.get(name));
  }
}

/** Names the files in the tree that are not what the sources build to. */
function differing(files) {
  const stored = new Set(readdirSync(out));
  const wrong = [...stored].filter((name) => !files.has(name));
  for (const [name, content] of files) {
    if (!stored.has(name) || !readFileSync(join(out, name)).equals(content)) wrong.push(name);
  }
  return wrong;
}

async function tests() {
  const below = (folder) =>
    readdirSync(join(here, 'tests', folder))
      .filter((name) => /\.test\.tsx?$/.test(name))
      .map((name) => join(here, 'tests', folder, name));
  for (const folder of ['unit', 'browser']) rmSync(join(here, '.tests', folder), { recursive: true, force: true });
  await esbuild.build({
    absWorkingDir: here,
    entryPoints: [...below('unit'), ...below('browser')],
    outbase: 'tests',
    outdir: '.tests',
    outExtension: { '.js': '.mjs' },
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    jsx: 'automatic',
    jsxImportSource: 'preact',
  });
}

const mode = process.argv[2];
if (mode === '--tests') {
  await tests();
} else if (mode === '--watch') {
  const again = {
    name: 'write',
    setup: (build_) => build_.onEnd(async () => write(await build())),
  };
  const context = await esbuild.context({ ...page, write: false, plugins: [again] });
  await context.watch();
} else {
  const files = await build();
  say(files);
  if (mode === '--check') {
    const wrong = differing(files);
    if (wrong.length > 0) {
      console.error(`not what the sources build to: ${wrong.join(', ')}; run \`npm run build\` in console/ and commit`);
      process.exit(1);
    }
  } else {
    write(files);
  }
}
