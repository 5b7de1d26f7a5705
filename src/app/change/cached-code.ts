/**
 * The code of rehearsals as the build left it: one script, and what V8 had made of it (`scripts/rehearsal-code.mjs`). To
 * compile it again would take a third of the time that a new process needs before its first request.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Script } from "node:vm";
import { gunzipSync } from "node:zlib";
import type { rehearseBeside } from "./rehearse-beside.ts";

type Loaded = { exports: { readonly rehearseBeside?: typeof rehearseBeside } };
type Load = (module: Loaded, require: NodeJS.Require, moduleUrl: string) => void;

/** Undefined if there is none for this version of V8. One that V8 refuses for another reason costs time, nothing else. */
export function cachedRehearse(folder: string): typeof rehearseBeside | undefined {
  const url = new URL("./rehearsal-code.js", folder);
  const cache = new URL(`./rehearsal-code.${process.versions.v8}-${process.arch}.gz`, folder);
  const read = readBoth(url, cache);
  if (read === undefined) return undefined;
  const script = new Script(read.code, { filename: fileURLToPath(url), cachedData: read.cachedData });
  const loaded: Loaded = { exports: {} };
  (script.runInThisContext() as Load)(loaded, createRequire(url), url.href);
  return loaded.exports.rehearseBeside;
}

function readBoth(code: URL, cache: URL): { readonly code: string; readonly cachedData: Buffer } | undefined {
  try {
    // The second is missing more often.
    const cachedData = gunzipSync(readFileSync(cache));
    return { code: readFileSync(code, "utf8"), cachedData };
  } catch {
    return undefined;
  }
}
