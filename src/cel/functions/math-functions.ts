/**
 * Implements the `math` functions of the CEL extension library, which the npm package lacks, except for bit
 * operations.
 */
import {
  type CelFunc,
  CelScalar,
  type CelUint,
  type CelValue,
  celFunc,
  celUint,
  isCelList,
  isCelUint,
} from "@bufbuild/cel";

const { BOOL, DOUBLE, DYN, INT, UINT } = CelScalar;
const MIN_INT = -(2n ** 63n);

type Numeric = bigint | number | CelUint;

export const mathFunctions: CelFunc[] = [
  // agentgateway's names are the short ones.
  ...["math.least", "min"].map((name) => celFunc(name, [DYN], DYN, (list) => extreme(list, name, (a, b) => a < b))),
  ...["math.greatest", "max"].map((name) => celFunc(name, [DYN], DYN, (list) => extreme(list, name, (a, b) => a > b))),

  celFunc("math.ceil", [DOUBLE], DOUBLE, Math.ceil),
  celFunc("math.floor", [DOUBLE], DOUBLE, Math.floor),
  celFunc("math.trunc", [DOUBLE], DOUBLE, Math.trunc),
  // CEL rounds halves away from zero, but Math.round rounds them up.
  celFunc("math.round", [DOUBLE], DOUBLE, (x) => Math.sign(x) * Math.round(Math.abs(x))),
  celFunc("math.sqrt", [DOUBLE], DOUBLE, Math.sqrt),
  celFunc("math.isNaN", [DOUBLE], BOOL, Number.isNaN),
  celFunc("math.isInf", [DOUBLE], BOOL, (x) => Math.abs(x) === Number.POSITIVE_INFINITY),
  celFunc("math.isFinite", [DOUBLE], BOOL, Number.isFinite),

  celFunc("math.abs", [DOUBLE], DOUBLE, Math.abs),
  celFunc("math.abs", [INT], INT, absoluteInt),
  celFunc("math.abs", [UINT], UINT, (x) => x),
  celFunc("math.sign", [DOUBLE], DOUBLE, Math.sign),
  celFunc("math.sign", [INT], INT, (x) => BigInt(Math.sign(Number(x)))),
  celFunc("math.sign", [UINT], UINT, (x) => celUint(x.value > 0n ? 1n : 0n)),
];

function extreme(
  numbers: CelValue,
  name: string,
  isBetter: (a: bigint | number, b: bigint | number) => boolean,
): CelValue {
  let best: Numeric | undefined;
  for (const item of isCelList(numbers) ? numbers : [numbers]) {
    if (!isNumeric(item)) throw new Error(`${name}: not a number`);
    if (best === undefined || isBetter(plain(item), plain(best))) best = item;
  }
  if (best === undefined) throw new Error(`${name}: the list is empty`);
  return best;
}

function isNumeric(value: CelValue): value is Numeric {
  return typeof value === "bigint" || typeof value === "number" || isCelUint(value);
}

function plain(value: Numeric): bigint | number {
  return typeof value === "object" ? value.value : value;
}

function absoluteInt(x: bigint): bigint {
  if (x === MIN_INT) throw new Error("math.abs: integer overflow");
  return x < 0n ? -x : x;
}
