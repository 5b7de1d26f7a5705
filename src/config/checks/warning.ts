/**
 * What a check says, with its place: in the form of every problem of the configuration.
 */
import { ConfigError } from "../../core/config-error.ts";
import type { Place } from "../load/normal-config.ts";
import { type Path, pathText } from "../text/value-path.ts";

export type Warn = (warning: ConfigError) => void;

export function warningAt({ document, path }: Place, below: Path, message: string): ConfigError {
  const whole = [...path, ...below];
  return new ConfigError(document.position(whole), pathText(whole), message);
}
