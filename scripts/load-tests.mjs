/**
 * Loads several test files into this process, each as a suite of its own: the hooks of a file are then hooks of its
 * tests only. One that cannot be loaded is a failed test with the file's name, and the others run.
 */
import { after, describe, test } from "node:test";
import fc from "fast-check";

/** Random tests find the same in each run of `npm test`; another seed looks elsewhere. */
fc.configureGlobal({ seed: Number(process.env.FAST_CHECK_SEED ?? 1) });

/** How long what a file closes at its end may take; nothing else keeps the process alive then. */
const CLOSING_MS = 60_000;

/** @param {readonly { name: string, url: string }[]} files */
export async function loadTests(files) {
  for (const { name, url } of files) {
    // One after the other: what a file registers belongs to the suite in which its loading began.
    await new Promise((loaded) => {
      describe(name, async () => {
        let awake;
        // Hooks run in their order: the file's own ones come between these two.
        after(() => {
          awake = setTimeout(() => undefined, CLOSING_MS);
        });
        try {
          await import(url);
          after(() => clearTimeout(awake));
        } catch (error) {
          test(`${name} cannot be loaded`, () => {
            throw error;
          });
          after(() => clearTimeout(awake));
        } finally {
          loaded();
        }
      });
    });
  }
}
