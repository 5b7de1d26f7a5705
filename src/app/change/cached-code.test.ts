import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Script } from "node:vm";
import { gzipSync } from "node:zlib";
import { cachedRehearse } from "./cached-code.ts";

const CODE = "(function (module, require, moduleUrl) { module.exports.rehearseBeside = () => moduleUrl; })";
const VERSION = `${process.versions.v8}-${process.arch}`;

const CASES: [what: string, cacheName: string | undefined, cache: Buffer, isLoaded: boolean][] = [
  ["with what this V8 made of it", `rehearsal-code.${VERSION}.gz`, new Script(CODE).createCachedData(), true],
  ["with what V8 cannot use", `rehearsal-code.${VERSION}.gz`, Buffer.from("something else"), true],
  ["with what another V8 made of it", "rehearsal-code.1.2.3-x64.gz", Buffer.alloc(0), false],
  ["alone", undefined, Buffer.alloc(0), false],
];

for (const [what, cacheName, cache, isLoaded] of CASES)
  test(`the script ${what} is ${isLoaded ? "loaded" : "left to the modules"}`, () => {
    const folder = mkdtempSync(join(tmpdir(), "gateway-code-"));
    try {
      writeFileSync(join(folder, "rehearsal-code.js"), CODE);
      if (cacheName !== undefined) writeFileSync(join(folder, cacheName), gzipSync(cache));
      const started = pathToFileURL(join(folder, "rehearsal-process.js")).href;
      const loaded = cachedRehearse(started) as (() => string) | undefined;
      assert.equal(loaded?.(), isLoaded ? started.replace("-process", "-code") : undefined);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
