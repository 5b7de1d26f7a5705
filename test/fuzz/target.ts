/**
 * What is fuzzed: something that makes cases and an oracle that judges them. An oracle compares with a second reading
 * of the same input (a reference, another chunking, the way back); "it does not throw" alone is not enough.
 */
import type { Random } from "../support/random.ts";

/** JSON in which bytes may stand; so a case can be written to a file, read and made smaller without its target. */
export type Case = null | boolean | number | string | Buffer | readonly Case[] | { readonly [name: string]: Case };

export interface Target<Input extends Case = Case> {
  readonly name: string;
  /** Well-formed cases: what mutations begin with. */
  readonly seeds: readonly Input[];
  /** Less than a second of work: what `npm test` runs. */
  readonly smokeCases: number;
  generate(random: Random): Input;
  /**
   * Throws on a finding. The text that it returns says what came of the case ("refused: …"): a case with a text that was
   * not seen before is kept and mutated further.
   */
  run(input: Input): string | Promise<string>;
}

/** Gives each target its own type of case and hides it from the driver. */
export function defineTarget<Input extends Case>(target: Target<Input>): Target {
  return target as unknown as Target;
}

export class Finding extends Error {
  constructor(message: string) {
    super(message);
    this.name = "Finding";
  }
}

export function expect(holds: boolean, message: string): asserts holds {
  if (!holds) throw new Finding(message);
}

/** Both as JSON, where the order of members does not count. */
export function expectSame(actual: unknown, expected: unknown, what: string): void {
  // Nearly always they are the same in every way: that is cheap to see.
  if (actual === expected || JSON.stringify(actual) === JSON.stringify(expected)) return;
  const one = stable(actual);
  const other = stable(expected);
  if (one !== other) throw new Finding(`${what}: ${one.slice(0, 300)} instead of ${other.slice(0, 300)}`);
}

function stable(value: unknown): string {
  return (
    JSON.stringify(value, (_key, inner: unknown) =>
      typeof inner === "object" && inner !== null && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : typeof inner === "bigint" || (typeof inner === "number" && !Number.isFinite(inner)) || Object.is(inner, -0)
          ? `${typeof inner} ${Object.is(inner, -0) ? "-0" : String(inner)}`
          : inner,
    ) ?? "undefined"
  );
}

/** What an action threw, if it is one of the errors that it may throw; any other is a finding. */
export function refusalOf(
  action: () => void,
  ...allowed: readonly (new (
    ...parameters: never[]
  ) => Error)[]
): Error | undefined {
  try {
    action();
    return undefined;
  } catch (error) {
    if (error instanceof Finding) throw error;
    if (allowed.some((one) => error instanceof one)) return error as Error;
    throw new Finding(`threw ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
}
