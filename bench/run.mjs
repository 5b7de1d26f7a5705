/**
 * `npm run bench [-- against|features|history|mcp|peers|rehearse|report|scale|start|steady|streams|tail|translate|warm-up|
 * work …] [--quick]`: compares programs or builds in one run, mostly by CPU time. Run it on an idle machine.
 */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { installIfMissing, step } from "../scripts/steps.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const names = process.argv.slice(2).filter((argument) => !argument.startsWith("-"));
const quick = process.argv.includes("--quick");

installIfMissing();
step("build", process.execPath, ["scripts/build.mjs"]);
for (const name of names.length > 0 ? names : ["peers"]) {
  const file = join(here, name, "run.mjs");
  if (!existsSync(file)) {
    console.error(`there is no bench named ${name}`);
    process.exit(1);
  }
  const module = await import(pathToFileURL(file).href);
  const bench = Object.values(module).find((value) => typeof value === "function");
  await bench({ quick });
}
process.exit(0);
