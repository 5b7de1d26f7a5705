/** The package version, which the bundler sets. It is `0.0.0-development` in a checkout that was not bundled. */
declare const PACKAGE_VERSION: string | undefined;

export const VERSION: string = typeof PACKAGE_VERSION === "string" ? PACKAGE_VERSION : "0.0.0-development";
