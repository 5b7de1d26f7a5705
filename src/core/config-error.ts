/**
 * A mistake in a configuration, with the place where it stands. Values that came from variables of the environment are
 * not in its message.
 */
import { type VariableValue, withVariableNames } from "../observe/trace/redact.ts";

/** Where in a configuration file something stands; lines and columns count from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** What variables of the environment put there: messages name the variable instead. */
  readonly variables?: readonly VariableValue[];
}

/** One mistake in a configuration: printed as one line, `file:line:column: path: message`. */
export class ConfigError extends Error {
  readonly position: Position | undefined;
  /** The field, for example `routes[0].policies.cors`. */
  readonly path: string;

  constructor(position: Position | undefined, path: string, message: string) {
    super(position?.variables === undefined ? message : withVariableNames(message, position.variables));
    this.name = "ConfigError";
    this.position = position;
    this.path = path;
  }

  toLine(): string {
    const at = this.position ? `${this.position.file}:${this.position.line}:${this.position.column}: ` : "";
    return `${at}${this.path === "" ? "" : `${this.path}: `}${this.message}`;
  }
}
