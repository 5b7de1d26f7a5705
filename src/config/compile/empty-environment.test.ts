/**
 * Every policy and every backend, compiled as a document of a cluster with an environment that has no machine and
 * connects to nothing: no field reaches a file, a process, a socket, a variable, or a credential of this machine. The
 * kinds and fields are those of the registries and their schemas, so a new one is covered.
 */
import assert from "node:assert/strict";
import childProcess from "node:child_process";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import net from "node:net";
import { test } from "node:test";
import { z } from "zod";
import { testEnv } from "../../../test/support/exchange.ts";
import { backends } from "../../backends/index.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { getLocalUse } from "../../core/schema.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { policies } from "../../policies/index.ts";
import { unwrap } from "../schema/schema-walk.ts";

const FILE = "/planted/by/the/test";
/** One of them is valid for almost every field. */
const TEXTS = [
  FILE,
  "unix:/planted/by/the/test.sock",
  "http://127.0.0.1:9/planted",
  "https://planted.example/path",
  "127.0.0.1:9",
  "planted.example:443",
  "planted",
  "true",
  "1m",
  "10",
  "planted:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
  "0123456789abcdef0123456789abcdef",
];
const MAX_DEPTH = 9;

type Steps = readonly (string | number)[];

/** Returns a value for the schema which has `field` at the rest of the path, or undefined if there is none. */
function* valuesOf(schema: z.ZodType, path: Steps, depth = 0): Generator<unknown> {
  if (depth > MAX_DEPTH) return;
  const [step, ...rest] = path;
  for (const one of unwrap(schema)) {
    if (one instanceof z.ZodObject) {
      const shape = Object.entries(one.shape) as [string, z.ZodType][];
      const wanted = shape.filter(([name, field]) => name === step || !field.safeParse(undefined).success);
      const parts = wanted.map(
        ([name, field]) => [name, first(valuesOf(field, name === step ? rest : [], depth + 1))] as const,
      );
      yield Object.fromEntries(parts.filter(([, value]) => value !== undefined));
    } else if (one instanceof z.ZodArray) yield [first(valuesOf(one.element as z.ZodType, rest, depth + 1))];
    else if (one instanceof z.ZodRecord)
      yield { planted: first(valuesOf(one.valueType as z.ZodType, rest, depth + 1)) };
    else if (one instanceof z.ZodEnum) yield* one.options;
    else if (one instanceof z.ZodLiteral) yield* one.values;
    else if (one instanceof z.ZodBoolean) yield true;
    else if (one instanceof z.ZodNumber) yield* [1, 1000];
    else yield* TEXTS.filter((text) => one.safeParse(text).success);
  }
}

function first(values: Generator<unknown>): unknown {
  const found = values.next();
  return found.done ? undefined : found.value;
}

function* pathsOf(schema: z.ZodType, path: Steps = [], depth = 0): Generator<{ path: Steps; schema: z.ZodType }> {
  if (depth > MAX_DEPTH) return;
  yield { path, schema };
  for (const one of unwrap(schema)) {
    if (one instanceof z.ZodObject)
      for (const [name, field] of Object.entries(one.shape))
        yield* pathsOf(field as z.ZodType, [...path, name], depth + 1);
    else if (one instanceof z.ZodArray) yield* pathsOf(one.element as z.ZodType, [...path, 0], depth + 1);
    else if (one instanceof z.ZodRecord) yield* pathsOf(one.valueType as z.ZodType, [...path, "planted"], depth + 1);
  }
}

function replaced(value: unknown, [step, ...rest]: Steps, planted: unknown): unknown {
  if (step === undefined) return planted;
  if (Array.isArray(value)) return [replaced(value[0], rest, planted)];
  return {
    ...(value as object),
    [step]: replaced((value as Record<string, unknown> | undefined)?.[step], rest, planted),
  };
}

interface Case {
  readonly name: string;
  readonly isLocal: boolean;
  compile(env: BackendEnv): unknown;
}

function* casesOf(
  kind: string,
  definition: { readonly schema: z.ZodType; compile(config: never, env: BackendEnv): unknown },
): Generator<Case> {
  const seen = new Set<string>();
  for (const { path, schema } of pathsOf(definition.schema)) {
    const marked = [schema, ...unwrap(schema)];
    const local = marked.map(getLocalUse).find((use) => use !== undefined);
    const isText = unwrap(schema).some((one) => one._zod.def.type === "string");
    if (!local && !isText) continue;
    const base = first(valuesOf(definition.schema, path));
    const planted = [...TEXTS, {}, { file: FILE }, { cmd: FILE }];
    for (const value of planted) {
      const config = definition.schema.safeParse(replaced(base, path, value));
      if (!config.success) continue;
      const key = JSON.stringify([path, value]);
      if (seen.has(key)) continue;
      seen.add(key);
      yield {
        name: `${kind} ${path.join(".")} = ${JSON.stringify(value)}`,
        isLocal: local !== undefined && (local as { isLocal?(value: unknown): boolean }).isLocal?.(value) !== false,
        compile: (env) => definition.compile(config.data as never, env),
      };
    }
  }
}

const CASES = [...policies, ...backends.map((one) => ({ ...one, kind: one.key }))].flatMap((definition) => [
  ...casesOf(definition.kind, definition as never),
]);

const reached: string[] = [];
/** The program loads files of its own on demand. */
const record =
  (what: string, original: (...args: readonly unknown[]) => unknown) =>
  (...args: readonly unknown[]): unknown => {
    if (String(args[0]).includes(process.cwd())) return original(...args);
    reached.push(`${what} ${JSON.stringify(args[0])}`);
    throw Object.assign(new Error(`the test refuses ${what}`), { code: "EACCES" });
  };

function env(): BackendEnv {
  return {
    ...testEnv,
    machine: undefined,
    egress: EgressGuard.for("document"),
    fetch: () => Promise.reject(new Error("the test refuses fetch")),
    readFile: (name) => {
      throw new Error(`${name} was not granted`);
    },
    name: "test",
    trustedHosts: [],
    requiresCredential: false,
    tls: undefined,
  };
}

test(`${CASES.length} configurations of all kinds reach nothing of this machine`, () => {
  const files = [
    "readFileSync",
    "openSync",
    "statSync",
    "lstatSync",
    "existsSync",
    "readdirSync",
    "watch",
    "createReadStream",
  ] as const;
  const patched: (() => void)[] = [];
  const patch = (module: object, names: readonly string[]): void => {
    for (const name of names) {
      const original = Reflect.get(module, name) as (...args: readonly unknown[]) => unknown;
      Reflect.set(module, name, record(name, original));
      patched.push(() => Reflect.set(module, name, original));
    }
  };
  patch(fs, files);
  patch(childProcess, ["spawn", "spawnSync", "fork", "exec", "execFile"]);
  patch(net, ["connect", "createConnection"]);
  syncBuiltinESMExports();
  const compiled = new Set<string>();
  try {
    for (const { name, isLocal, compile } of CASES) {
      reached.length = 0;
      let failure: Error | undefined;
      try {
        compile(env());
      } catch (error) {
        failure = error as Error;
      }
      assert.deepEqual(reached, [], `${name}: ${failure?.message ?? ""}`);
      if (isLocal && failure === undefined) compiled.add(name);
    }
  } finally {
    for (const restore of patched) restore();
    syncBuiltinESMExports();
  }
  assert.deepEqual([...compiled], []);
});
