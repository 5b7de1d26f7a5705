/**
 * A program that shows what a folder store does without write access to its folder. It gives up the rights of root, which
 * permissions do not restrict. Usage: `node read-only-folder.js <folder> run|start`
 */
import { chmodSync, chownSync, readdirSync } from "node:fs";
import { systemClock } from "../../../src/base/clock.ts";
import { silentLogger } from "../../../src/record/log/logger.ts";
import { openFolderStore } from "../../../src/store/folder-store.ts";

const NOBODY = 65_534;
const LARGE = "x".repeat(1_000_000);
const [, , folder = "", mode] = process.argv;
if (process.getuid?.() === 0) {
  if (mode === "run") chownSync(folder, NOBODY, NOBODY);
  process.setgid?.(NOBODY);
  process.setuid?.(NOBODY);
}
let noteProblem: (reason: unknown) => void = () => undefined;
const error = (_event: string, fields?: { readonly reason?: unknown }): void => noteProblem(fields?.reason);
const open = () => openFolderStore(folder, { clock: systemClock, logger: { ...silentLogger, error } });

if (mode === "run") {
  const store = await open();
  await store.set("budgets/a", "1");
  chmodSync(folder, 0o500);
  await store.set("budgets/b", "2");
  // A journal is replaced after more than 4 MiB, which needs a new file.
  const failure = new Promise((resolve) => {
    noteProblem = resolve;
  });
  for (let i = 0; i < 6; i++) await store.set("budgets/large", `${i}${LARGE}`);
  console.log(await failure);
  console.log(readdirSync(folder).sort().join(" "));
  chmodSync(folder, 0o700);
  while (!readdirSync(folder).includes("snapshot.2")) await store.set("budgets/c", "3");
  await store.sync();
  console.log(store.health().state);
  chmodSync(folder, 0o500);
  await store.close();
} else {
  const refused = await open().catch((reason: Error) => reason.message);
  console.log(refused);
  chmodSync(folder, 0o700);
  const store = await open();
  console.log(await Promise.all(["budgets/a", "budgets/b", "budgets/c"].map((key) => store.get(key))));
  await store.close();
}
