/**
 * Why a file that the configuration names cannot be read, in one form for all of them: the path as it was looked for,
 * what the system says, and what mends it where that is certain.
 */

const SYSTEM_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  ENOTDIR: "a part of the path is not a directory",
  EISDIR: "it is a directory",
  EACCES: "permission denied",
};

export function fileProblem(path: string, error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === undefined) return `cannot read ${path}: ${message}`;
  const meaning = SYSTEM_ERRORS[code];
  return `cannot read ${path}: ${code}${meaning === undefined ? "" : ` (${meaning})`}${homeHint(path, code)}`;
}

/** `~` is the shell's word for the home directory; here it is the name of a folder that nobody has. */
export function homeHint(path: string, code: string | undefined): string {
  return code === "ENOENT" && /(?:^|[/\\])~[/\\]/.test(path)
    ? ": `~` is not expanded, use the full path or `${HOME}`"
    : "";
}
