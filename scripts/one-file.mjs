/**
 * Builds the single executable: Node's binary with the program and its files inside (ADR 17). Node 20 runs one CommonJS
 * script from there, so the modules are bundled again into one file.
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { inject } from "postject";
import { bundleOptions } from "./bundle.mjs";
import { filesBelow } from "./pack-docs.mjs";
import { root, step } from "./steps.mjs";

/** What Node looks for in itself; both are fixed by Node. */
const FUSE = "NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2";
const RESOURCE = "NODE_SEA_BLOB";

const isMac = process.platform === "darwin";
export const oneFileName = process.platform === "win32" ? "gateway.exe" : "gateway";

export async function writeOneFile(out) {
  const work = mkdtempSync(join(tmpdir(), "gateway-one-file-"));
  try {
    const main = join(work, "main.cjs");
    await bundleAsScript(work, main);
    const blob = join(work, "blob");
    const config = join(work, "sea.json");
    writeFileSync(
      config,
      JSON.stringify({
        main,
        output: blob,
        disableExperimentalSEAWarning: true,
        useCodeCache: true,
        assets: await assets(work),
      }),
    );
    step("executable", process.execPath, ["--experimental-sea-config", config]);
    const target = join(out, oneFileName);
    copyFileSync(process.execPath, target);
    chmodSync(target, 0o755);
    // A signature does not survive the change; macOS runs nothing without one.
    if (isMac) step("remove the signature", "codesign", ["--remove-signature", target]);
    await inject(target, RESOURCE, readFileSync(blob), {
      sentinelFuse: FUSE,
      ...(isMac ? { machoSegmentName: "NODE_SEA" } : {}),
    });
    if (isMac) step("sign", "codesign", ["--sign", "-", target]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * Bundles in two steps: the terminal UI's libraries use top-level await, which CommonJS does not support. Bundled as a
 * module, they become functions that are awaited on demand; the result can then be written as a script.
 */
async function bundleAsScript(work, main) {
  const whole = join(work, "whole.mjs");
  await build({
    ...bundleOptions,
    entryPoints: ["src/bin/one-file.ts"],
    outfile: whole,
    define: { ...bundleOptions.define, "import.meta.url": "__programUrl" },
  });
  await build({
    ...bundleOptions,
    absWorkingDir: work,
    plugins: [],
    entryPoints: [whole],
    outfile: main,
    format: "cjs",
    // Dynamic imports are needed only for modules that are not embedded; a missing one fails with the usual error.
    supported: { "dynamic-import": false },
    banner: { js: 'const __programUrl = require("node:url").pathToFileURL(process.execPath).href;' },
  });
}

/** A script in a thread would load other modules from the working directory, so it gets only those of Node. */
const THREAD_BANNER = `((require) => {
const __programUrl = require("node:url").pathToFileURL(process.execPath).href;`;
const THREAD_FOOTER = `})((name) => {
  const found = process.getBuiltinModule(name);
  if (found === undefined) throw Object.assign(new Error("Cannot find module '" + name + "'"), { code: "MODULE_NOT_FOUND" });
  return found;
});`;

/** Threads cannot load modules from inside of the executable: they run one script each. */
async function bundleThread(work, name, entryPoint, options = {}) {
  const outfile = join(work, name);
  await build({ ...bundleOptions, entryPoints: [entryPoint], outfile, format: "cjs", ...options });
  return { [name]: outfile };
}

async function assets(work) {
  const ui = join(root, "dist", "ui");
  const files = Object.fromEntries(readdirSync(ui).map((name) => [`ui/${name}`, join(ui, name)]));
  const docs = join(root, "dist", "docs");
  if (existsSync(docs)) for (const name of filesBelow(docs)) files[`docs/${name}`] = join(docs, name);
  const list = join(work, "files.txt");
  writeFileSync(list, Object.keys(files).join("\n"));
  const threads = await bundleThread(work, "password-worker.js", "src/identity/passwords/password-worker.ts");
  const descriptions = await bundleThread(work, "description-worker.js", "src/mcp/openapi/description-worker.ts");
  const history = await bundleThread(work, "history-worker.js", "src/record/history/history-worker.ts");
  const workers = await bundleThread(work, "thread.js", "src/bin/thread.ts", {
    define: { ...bundleOptions.define, "import.meta.url": "__programUrl" },
    supported: { ...bundleOptions.supported, "dynamic-import": false },
    banner: { js: THREAD_BANNER },
    footer: { js: THREAD_FOOTER },
  });
  return { ...files, ...threads, ...descriptions, ...history, ...workers, "files.txt": list };
}
