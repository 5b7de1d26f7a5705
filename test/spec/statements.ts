/**
 * The statements of the specification, section by section, in our own words. A test claims one by its id in brackets in
 * its name; `test/spec.test.ts` fails for a statement that no test claims and for an id that is not listed here.
 */
import { BEHAVIOUR_STATEMENTS } from "./behaviour.ts";
import { CONFIGURATION_STATEMENTS } from "./configuration.ts";
import type { StatementGroup } from "./statement-group.ts";

export const STATEMENT_GROUPS: readonly StatementGroup[] = [...CONFIGURATION_STATEMENTS, ...BEHAVIOUR_STATEMENTS];

export const STATEMENTS: ReadonlyMap<string, string> = new Map(
  STATEMENT_GROUPS.flatMap(({ rows }) => Object.entries(rows)),
);
