/**
 * The CEL environment: the library's standard functions, its strings extension, and ours over both (a later function
 * replaces an earlier one of the same name and types). Built once per process and never changed.
 * It also knows which names take how many arguments, so that a misspelt function stops the load, not a request.
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

/** How a name may be called: `f(a, b)`, or `a.f(b)`; the numbers count the arguments in the parentheses. */
export interface Signature {
  readonly asFunction: ReadonlySet<number>;
  readonly asMethod: ReadonlySet<number>;
  /** Takes this many arguments or more (as a function). */
  readonly atLeast?: number;
}

/** Forms that never reach a function: the parser expands the macros, rewrite.ts the rest. */
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
  ["matches", { asFunction: new Set([2]), asMethod: new Set([1]) }],
  ["regexReplace", { asFunction: new Set([3]), asMethod: new Set([2]) }],
];

/** The names that a source can write, without operators. */
export const signatures: ReadonlyMap<string, Signature> = collectSignatures();

/** `base64.encode` if the call is one of a function with such a name, and not of a method on a value. */
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
