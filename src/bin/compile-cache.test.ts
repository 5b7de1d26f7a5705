import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { privateCacheFolder } from "./compile-cache.ts";

const folder = mkdtempSync(join(tmpdir(), "gateway-compile-cache-"));
after(() => rmSync(folder, { recursive: true, force: true }));

test("creates a folder for its user only", () => {
  const XDG_CACHE_HOME = join(folder, "new", "cache");
  assert.equal(privateCacheFolder({ XDG_CACHE_HOME }), join(XDG_CACHE_HOME, "mcp-llm-gateway"));
  assert.equal(statSync(join(XDG_CACHE_HOME, "mcp-llm-gateway")).mode & 0o777, 0o700);
});

test("does not use a folder that other users can write", () => {
  const XDG_CACHE_HOME = join(folder, "shared");
  mkdirSync(join(XDG_CACHE_HOME, "mcp-llm-gateway"), { recursive: true });
  chmodSync(join(XDG_CACHE_HOME, "mcp-llm-gateway"), 0o777);
  assert.equal(privateCacheFolder({ XDG_CACHE_HOME }), undefined);
});

test("does not follow a link", () => {
  const XDG_CACHE_HOME = join(folder, "linked");
  mkdirSync(XDG_CACHE_HOME);
  mkdirSync(join(folder, "target"));
  symlinkSync(join(folder, "target"), join(XDG_CACHE_HOME, "mcp-llm-gateway"));
  assert.equal(privateCacheFolder({ XDG_CACHE_HOME }), undefined);
});

test("does without a folder if none can be created", () => {
  const file = join(folder, "file");
  writeFileSync(file, "");
  assert.equal(privateCacheFolder({ XDG_CACHE_HOME: file }), undefined);
  assert.equal(existsSync(join(file, "mcp-llm-gateway")), false);
});
