/**
 * The code of rehearsals as one script, with what V8 made of it beside it: a new process that finds both starts in half the
 * time. The second file only fits the version of V8 that wrote it; others load the modules (`src/app/change/cached-code.ts`).
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Script } from "node:vm";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { bundleOptions } from "./bundle.mjs";
import { root } from "./steps.mjs";

const REQUESTS = 50;

export async function writeRehearsalCode(out) {
  const folder = resolve(root, out);
  const file = join(folder, "rehearsal-code.js");
  await build({
    ...bundleOptions,
    entryPoints: ["src/app/change/rehearse-beside.ts"],
    outfile: file,
    format: "cjs",
    minifyIdentifiers: true,
    define: { ...bundleOptions.define, "import.meta.url": "moduleUrl" },
    // What is loaded later is for sending, and a rehearsal sends nothing.
    plugins: [...bundleOptions.plugins, { name: "never-loaded", setup: leaveImportsOut }],
    // One expression, so that whoever loads it says what these are.
    banner: { js: "(function (module, require, moduleUrl) {" },
    footer: { js: "})" },
  });
  execFileSync(process.execPath, [...(await flags()), fileURLToPath(import.meta.url), folder], { stdio: "inherit" });
}

async function flags() {
  const { outputFiles } = await build({
    entryPoints: ["src/app/change/rehearsal-flags.ts"],
    format: "esm",
    write: false,
  });
  const module = await import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`);
  return module.REHEARSAL_FLAGS;
}

/** In a process with the flags of rehearsals: V8 takes nothing that was made with others. */
async function writeCache(folder) {
  const { script, exports } = load(join(folder, "rehearsal-code.js"));
  await tryOut(exports.rehearseBeside);
  const version = `${process.versions.v8}-${process.arch}`;
  writeFileSync(join(folder, `rehearsal-code.${version}.gz`), gzipSync(script.createCachedData(), { level: 9 }));
}

function load(file) {
  const script = new Script(readFileSync(file, "utf8"), { filename: file });
  const loaded = { exports: {} };
  script.runInThisContext()(loaded, createRequire(file), pathToFileURL(file).href);
  return { script, exports: loaded.exports };
}

function leaveImportsOut(bundler) {
  bundler.onResolve({ filter: /.*/ }, ({ path, kind }) =>
    kind === "dynamic-import" ? { path, external: true } : undefined,
  );
}

/** V8 keeps what has run: a small rehearsal of the usual policies. */
async function tryOut(rehearseBeside) {
  const source = (role) => [{ file: "config.yaml", text: configOf(role) }];
  const input = { before: source("admin"), after: source("other"), environment: {} };
  const records = Array.from({ length: REQUESTS }, (_, i) => `${recordOf(i)}\0`).join("");
  const found = await rehearseBeside({ input, segments: [Buffer.from(records)] });
  if (found.report?.requests !== REQUESTS || found.report.denied[0]?.requests !== REQUESTS)
    throw new Error(`the rehearsal of the build went wrong: ${JSON.stringify(found)}`);
}

function configOf(role) {
  return `
gateways: { default: { port: 3000 } }
routes:
  - name: api
    backends: [{ host: "127.0.0.1:8080" }]
    policies:
      cors: { allowOrigins: ["https://example.com"] }
      apiKey: { keys: [{ key: key-of-alice-12345, metadata: { user: alice, role: admin } }] }
      authorization: { rules: ['apiKey.role == "${role}"', 'request.headers["x-a"] == "1"'] }
      rateLimit: { local: [{ requests: 1000, unit: Seconds, key: apiKey.user }] }
      requestHeaderModifier: { set: { x-b: "2" } }
`;
}

/** See `recordText`: the fields in their order, then the headers. */
function recordOf(i) {
  const about = [
    1_700_000_000_000 + i,
    `request-${i}`,
    1_000,
    "default",
    "GET",
    "http",
    "localhost",
    "/",
    "",
    "127.0.0.1",
  ];
  const outcome = ["", "api", 200, "", "alice", "apiKey,authorization", "key:df193b54"];
  const facts = ["", '{"user":"alice","role":"admin"}', "", ""];
  return [...about, ...outcome, ...facts, "host", "localhost", "accept", "*/*", "x-a", "1"].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await writeCache(process.argv[2]);
