// The rules for the page's code; prettier decides how it is laid out.

import js from "@eslint/js";
import globals from "globals";

export default [
  {
    files: ["service/web/*/*.js"],
    languageOptions: { globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      ...js.configs.recommended.rules,
      eqeqeq: "error",
      "max-len": ["error", 100],
      "no-shadow": "error",
      "no-unused-expressions": "error",
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
