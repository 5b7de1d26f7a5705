/**
 * Loads several test files into this process, each as its own suite, so that the hooks of a file apply to its tests
 * only. A file that cannot be loaded becomes a failed test with its name, and the others run.
 */
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { cpuSeconds, noteCpu } from "./test-cpu.mjs";

/** Random tests find the same in each run of `npm test`; another seed looks elsewhere. */
fc.configureGlobal({ seed: Number(process.env.FAST_CHECK_SEED ?? 1) });

/** The time limit for cleanup at the end of a file; nothing else keeps the process alive then. */
const CLOSING_MS = 60_000;

/**
 * @param {string} entry the URL of the module that asks for it
 * @param {readonly { name: string, url: string }[]} files
 */
export async function loadTests(entry, files) {
  const taken = new Map();
  let since = 0;
  const note = (name) => {
    const now = cpuSeconds();
    if (now === undefined) return;
    taken.set(name, (taken.get(name) ?? 0) + now - since);
    since = now;
  };
  let allLoaded;
  const loading = new Promise((resolve) => {
    allLoaded = resolve;
  });
  for (const { name, url } of files) {
    // Loaded one after another, because registrations belong to the suite in which loading began.
    await new Promise((loaded) => {
      describe(name, async () => {
        let awake;
        const end = () => {
          clearTimeout(awake);
          note(name);
        };
        // Hooks run in their order: the file's own ones come between these two.
        before(async () => {
          // Tests can load modules with `require`, which fails for modules that an import has not loaded completely.
          await loading;
          note("(starting Node and loading the files)");
        });
        after(() => {
          awake = setTimeout(() => undefined, CLOSING_MS);
        });
        try {
          await import(url);
          after(end);
        } catch (error) {
          test(`${name} cannot be loaded`, () => {
            throw error;
          });
          after(end);
        } finally {
          loaded();
        }
      });
    });
  }
  allLoaded();
  process.on("exit", () => {
    note("(ending)");
    noteCpu(fileURLToPath(entry), taken);
  });
}
