/**
 * A file that the configuration names: a key, a certificate, a list of prices. Refused: what is no regular file, because
 * a pipe or device would make the start hang, and what is too large to be one of these.
 */
import { readFileSync, statSync } from "node:fs";
import { fileProblem } from "../../base/file-problem.ts";

/** Key files, certificates and price lists are small; anything larger is a mistake. */
const MAX_FILE_BYTES = 1024 * 1024;

/** `fileRead` is told the path first: the watcher looks at it, readable or not. */
export function readConfigFile(path: string, fileRead: (path: string) => void, maxBytes = MAX_FILE_BYTES): string {
  fileRead(path);
  let size: number;
  try {
    const status = statSync(path);
    if (!status.isFile()) throw new Error("it is not a regular file");
    size = status.size;
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
  if (size > maxBytes) throw new Error(`${path} is larger than ${maxBytes / (1024 * 1024)} MiB`);
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
}
