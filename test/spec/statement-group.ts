/**
 * A section of the specification: its title and its statements.
 */
export interface StatementGroup {
  readonly title: string;
  /** Id (`S<section>-<number>`) → the statement in one sentence. */
  readonly rows: Readonly<Record<string, string>>;
}
