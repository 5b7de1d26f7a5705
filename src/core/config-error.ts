/**
 * Defines configuration errors with a position.
 */
import { type VariableValue, withVariableNames } from "../record/trace/redact.ts";

/** Lines and columns count from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** Environment variables inserted these values at the position. */
  readonly variables?: readonly VariableValue[];
}

export class ConfigError extends Error {
  readonly position: Position | undefined;
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
