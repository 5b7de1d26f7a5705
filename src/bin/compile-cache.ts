/**
 * Keeps compiled code between starts, in a folder that only this user can write, because its files are executed. Node
 * supports this since 22.8 and turns it off with NODE_DISABLE_COMPILE_CACHE=1. NODE_COMPILE_CACHE names another folder.
 */
import { lstatSync, mkdirSync } from "node:fs";
import nodeModule from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { isOneFile } from "../base/embedded-files.ts";
import { type Environment, processEnvironment } from "../config/text/env.ts";

/** The types of Node 20 do not have these functions. */
const node = nodeModule as {
  enableCompileCache?(folder: string): unknown;
  flushCompileCache?(): void;
};

/** Set the flags of V8 before, because they are part of the cache's key. */
export function enableCompileCache(): void {
  const environment = processEnvironment();
  // Node has read this variable, and the single executable contains its compiled code.
  if (node.enableCompileCache === undefined || environment.NODE_COMPILE_CACHE || isOneFile()) return;
  const folder = privateCacheFolder(environment);
  if (folder !== undefined) node.enableCompileCache(folder);
}

/** Writes code that is not in the cache yet. Otherwise Node writes it at the exit, which a killed process never reaches. */
export function flushCompileCache(): void {
  node.flushCompileCache?.();
}

/** Returns undefined if there is no folder that other users cannot write. */
export function privateCacheFolder({ XDG_CACHE_HOME }: Environment): string | undefined {
  try {
    const folder = join(XDG_CACHE_HOME || join(homedir(), ".cache"), "mcp-llm-gateway");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const found = lstatSync(folder);
    const isOwn = process.getuid === undefined || found.uid === process.getuid();
    return isOwn && found.isDirectory() && (found.mode & 0o022) === 0 ? folder : undefined;
  } catch {
    return undefined;
  }
}
