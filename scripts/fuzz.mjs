/**
 * `npm run fuzz -- [target …] [--minutes N] [--cases N] [--seed S] [--jobs N] [--keep] [--replay file]`: runs the fuzz
 * targets, with `--jobs` in several processes with a seed each.
 */
import { compileAll, takeOption } from "./compiled.mjs";

const args = process.argv.slice(2);
const jobs = Number(takeOption(args, "--jobs") ?? 1);
const seed = Number(takeOption(args, "--seed") ?? Date.now() % 1_000_000);
const run = compileAll();
const codes = await Promise.all(
  Array.from({ length: jobs }, (_, job) => run("test/fuzz/main", [...args, "--seed", String(seed + job)])),
);
process.exitCode = Math.max(...codes);
