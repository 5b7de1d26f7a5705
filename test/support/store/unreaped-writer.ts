/**
 * A program whose child is a folder writer that stays a zombie after it is killed: this process blocks in a read, so it
 * does not wait for its child. Prints the child's process id. Ends when its input ends. Usage: `node unreaped-writer.js
 * <folder>`
 */
import { spawn } from "node:child_process";
import { readSync, writeSync } from "node:fs";
import { fileURLToPath } from "node:url";

const [, , folder = ""] = process.argv;
const writer = fileURLToPath(new URL("./folder-writer.js", import.meta.url));
const child = spawn(process.execPath, [writer, folder], { stdio: ["ignore", "pipe", "inherit"] });
child.stdout.once("data", () => {
  writeSync(1, `${child.pid}\n`);
  readSync(0, Buffer.alloc(1));
  child.kill("SIGKILL");
  child.stdout.destroy();
});
