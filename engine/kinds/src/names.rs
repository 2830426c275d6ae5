//! The names of enumerations' members.

/// Hands the enumerations of parameters to a macro, in rows of `Type, "what it is": { "name" Member, … }`.
#[macro_export]
macro_rules! enum_names {
    ($then:ident) => {
        $then! {
            ActivationKind, "a function": {
                "relu" Relu, "sigmoid" Sigmoid, "tanh" Tanh, "leaky_relu" LeakyRelu, "elu" Elu, "selu" Selu,
                "softsign" Softsign, "softplus" Softplus, "clip" Clip, "hard_sigmoid" HardSigmoid,
                "scaled_tanh" ScaledTanh, "thresholded_relu" ThresholdedRelu, "gelu_erf" GeluErf, "gelu_tanh" GeluTanh
            }
            AttentionNorm, "a normalization": { "none" None, "softmax" Softmax }
            CausalMask, "a causal mask": { "none" None, "upper_left" UpperLeft, "lower_right" LowerRight }
            BoundingBoxFormat, "a format of boxes": { "corner_pairs" CornerPairs, "center_sizes" CenterSizes }
            ElementwiseOp, "an operation": {
                "sum" Sum, "prod" Prod, "max" Max, "min" Min, "sub" Sub, "div" Div, "pow" Pow, "floor_div" FloorDiv,
                "and" And, "or" Or, "xor" Xor, "equal" Equal, "greater" Greater, "less" Less
            }
            UnaryOp, "an operation": {
                "exp" Exp, "log" Log, "sqrt" Sqrt, "recip" Recip, "abs" Abs, "neg" Neg, "sin" Sin, "cos" Cos,
                "tan" Tan, "sinh" Sinh, "cosh" Cosh, "asin" Asin, "acos" Acos, "atan" Atan, "asinh" Asinh,
                "acosh" Acosh, "atanh" Atanh, "ceil" Ceil, "floor" Floor, "erf" Erf, "not" Not, "sign" Sign,
                "round" Round, "isinf" IsInf, "isnan" IsNan
            }
            FillOp, "an operation": {
                "linspace" Linspace, "random_uniform" RandomUniform, "random_normal" RandomNormal
            }
            GatherMode, "a mode": { "default" Default, "element" Element, "nd" Nd }
            ScatterMode, "a mode": { "element" Element, "nd" Nd }
            InterpolationMode, "an interpolation": { "nearest" Nearest, "linear" Linear, "cubic" Cubic }
            MatrixOp, "an operation": { "none" None, "transpose" Transpose, "vector" Vector }
            PaddingMode, "a padding mode": {
                "explicit_round_down" ExplicitRoundDown, "explicit_round_up" ExplicitRoundUp,
                "same_upper" SameUpper, "same_lower" SameLower
            }
            PoolingKind, "a kind of pooling": {
                "max" Max, "average" Average, "max_average_blend" MaxAverageBlend
            }
            ReduceOp, "an operation": { "sum" Sum, "prod" Prod, "max" Max, "min" Min, "avg" Avg }
            TopKOp, "an operation": { "max" Max, "min" Min }
            ResizeCoordinates, "a rule for coordinates": {
                "align_corners" AlignCorners, "asymmetric" Asymmetric, "half_pixel" HalfPixel
            }
            ResizeRounding, "a rounding": { "half_up" HalfUp, "half_down" HalfDown, "floor" Floor, "ceil" Ceil }
            ResizeSelector, "a selector": { "formula" Formula, "upper" Upper }
            SampleMode, "a mode": {
                "strict_bounds" StrictBounds, "wrap" Wrap, "clamp" Clamp, "fill" Fill, "reflect" Reflect
            }
            ScaleMode, "a mode": { "uniform" Uniform, "channel" Channel, "elementwise" Elementwise }
            LoopOutputKind, "a kind of output": {
                "last_value" LastValue, "concatenate" Concatenate, "reverse" Reverse
            }
            TripLimitKind, "a kind of limit": { "count" Count, "while" While }
        }
    };
}
