/** Counts the work of readers at n, 2n, and 4n bytes. */
import { countWork, type Task } from "./count-work.ts";
import type { Hostile } from "./hostile.ts";

/** For each doubling of the bytes. */
const MAX_GROWTH = 2.3;
const MAX_GROWTH_AFTER_LIMIT = 2.05;
/** A reader may look at the whole input once more to tell why it refuses it. */
const MAX_GROWTH_TO_REFUSAL = 3;

export interface Growth {
  readonly input: string;
  readonly shape: string;
  readonly pieceBytes: number;
  /** At n, 2n, and 4n. */
  readonly steps: readonly number[];
  readonly touched: readonly number[];
  readonly outcomes: readonly string[];
  readonly isLinear: boolean;
}

interface Case {
  readonly input: string;
  readonly shape: string;
  readonly pieceBytes: number;
  readonly sizes: readonly number[];
  readonly uncomparedSteps: number;
}

/** The group's module exports records of inputs as its named interface. */
export interface Group {
  readonly module: string;
  readonly inputs: Readonly<Record<string, Hostile>>;
}

/** Groups are counted in parallel, each in its own thread. */
export async function growthOf({ module, inputs }: Group): Promise<readonly Growth[]> {
  // Entries of the same reader share generators, and are counted once. Reading the counts takes longer after a reader has
  // loaded a library, so these readers are the last of their groups.
  const distinct = new Map<Hostile, string>();
  for (const [input, hostile] of Object.entries(inputs)) if (!distinct.has(hostile)) distinct.set(hostile, input);
  const cases = [...distinct].flatMap(([{ shapes, pieces, bytes, uncomparedSteps }, input]) =>
    shapes.flatMap((shape) =>
      pieces.map(
        (pieceBytes): Case => ({ input, shape, pieceBytes, sizes: [bytes, 2 * bytes, 4 * bytes], uncomparedSteps }),
      ),
    ),
  );
  const tasks = cases.flatMap(({ input, shape, pieceBytes, sizes }) =>
    sizes.map((n): Task => ({ module, input, shape, pieceBytes, n })),
  );
  const works = await countWork(tasks);
  let at = 0;
  return cases.map(({ sizes, uncomparedSteps, ...rest }): Growth => {
    const counted = works.slice(at, at + sizes.length);
    at += sizes.length;
    const steps = counted.map((work) => work.steps);
    const touched = counted.map((work) => work.touched);
    const outcomes = counted.map(({ outcome }) => outcome);
    return {
      ...rest,
      steps,
      touched,
      outcomes,
      isLinear: isLinear(steps, outcomes, uncomparedSteps) && isLinear(touched, outcomes, uncomparedSteps),
    };
  });
}

/** Compares the work that each doubling adds, so that constants do not count. */
function isLinear(
  [first = 0, second = 0, third = 0]: readonly number[],
  outcomes: readonly string[],
  uncompared: number,
): boolean {
  if (third - second <= uncompared || third - second <= MAX_GROWTH * (second - first)) return true;
  // The work to the first limit of a reader is not part of the growth.
  if (second <= 2 * first && third <= MAX_GROWTH_AFTER_LIMIT * second) return true;
  const [, below, beyond] = outcomes;
  const isRefusal = beyond?.startsWith("refused") === true && below !== beyond;
  return isRefusal && third <= MAX_GROWTH_TO_REFUSAL * second && second <= MAX_GROWTH * first;
}
