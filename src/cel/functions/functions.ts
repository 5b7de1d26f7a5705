/**
 * Defines the CEL environment: the library's standard functions, its strings extension, and the gateway's functions.
 * A later function replaces an earlier one with the same name and types.
 */
import { type CelEnv, celEnv } from "@bufbuild/cel";
import { strings } from "@bufbuild/cel/ext";
import { type CallNode, qualifiedName } from "../syntax/syntax-tree.ts";
import { encodingFunctions } from "./encoding-functions.ts";
import { hostFunctions } from "./host-functions.ts";
import { ipFunctions } from "./ip-functions.ts";
import { mathFunctions } from "./math-functions.ts";
import { stringFunctions } from "./string-functions.ts";
import { timeFunctions } from "./time-functions.ts";

export const environment: CelEnv = celEnv({
  funcs: [
    ...strings,
    ...stringFunctions,
    ...encodingFunctions,
    ...mathFunctions,
    ...ipFunctions,
    ...timeFunctions,
    ...hostFunctions,
  ],
});

/** Lists the argument counts of a name called as `f(a, b)` or as `a.f(b)`. The method's target is not counted. */
export interface Signature {
  readonly asFunction: ReadonlySet<number>;
  readonly asMethod: ReadonlySet<number>;
  readonly atLeast?: number;
}

/**
 * Overrides signatures of the environment, because the parser expands the macros and rewrite.ts replaces the other
 * calls.
 */
const SPECIAL: readonly (readonly [name: string, signature: Signature])[] = [
  ["has", functionWith(1)],
  ["all", methodWith(2)],
  ["exists", methodWith(2)],
  ["exists_one", methodWith(2)],
  ["existsOne", methodWith(2)],
  ["filter", methodWith(2)],
  ["map", methodWith(2, 3)],
  ["default", functionWith(2)],
  ["coalesce", { ...functionWith(), atLeast: 1 }],
  ["math.least", { ...functionWith(), atLeast: 1 }],
  ["math.greatest", { ...functionWith(), atLeast: 1 }],
  ["min", { ...functionWith(), atLeast: 1 }],
  ["max", { ...functionWith(), atLeast: 1 }],
  ["matches", { asFunction: new Set([2]), asMethod: new Set([1]) }],
  ["regexReplace", { asFunction: new Set([3]), asMethod: new Set([2]) }],
];

export const signatures: ReadonlyMap<string, Signature> = collectSignatures();

export function namespacedName(call: CallNode): string | undefined {
  const name = qualifiedName(call);
  return name !== undefined && signatures.has(name) ? name : undefined;
}

function collectSignatures(): Map<string, Signature> {
  const found = new Map<string, { asFunction: Set<number>; asMethod: Set<number> }>();
  for (const func of environment.funcs) {
    if (!/^[A-Za-z][\w.]*$/.test(func.name)) continue;
    const signature = found.get(func.name) ?? { asFunction: new Set(), asMethod: new Set() };
    found.set(func.name, signature);
    (func.target === undefined ? signature.asFunction : signature.asMethod).add(func.arguments.length);
  }
  return new Map<string, Signature>([...found, ...SPECIAL]);
}

function functionWith(...counts: number[]): Signature {
  return { asFunction: new Set(counts), asMethod: new Set() };
}

function methodWith(...counts: number[]): Signature {
  return { asFunction: new Set(), asMethod: new Set(counts) };
}
